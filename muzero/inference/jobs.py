"""A layer's work as the compiled functions are given it: an array of int64, most of them addresses.

A job is one linear layer or convolution over a batch of images whose rows of pixels lie in memory with a border in
between. A linear layer is a job too: one image of one row, whose pixels are the samples. A pixel's inputs are `NUM_TAPS`
runs of `DEPTH` numbers; those of a 3x3 convolution are the pixel itself and its neighbours.

Numba's cache of C functions watches their own file alone: after a change of the numbers here, touch `tiles.py` and `amx.py`.
"""

(
    X,  # address of pixel 0
    OUT,
    EXTRA,  # what is added before the ReLU, laid out as `OUT`; 0 for nothing
    WEIGHTS,
    BIAS,
    BIAS_ROWS,  # for every pixel, which row of biases it gets
    TAPS,  # for every tap, how many numbers it lies behind the pixel
    NUM_TAPS,
    DEPTH,  # also the step from one pixel to the next
    WIDTH,  # outputs of a pixel
    RELU,
    TO_FLOAT,  # write float32, also where numbers are bfloat16
    NUM_IMAGES,
    HEIGHT,
    ROW_LENGTH,  # pixels
    FIRST,  # first pixel of the first image
    IMAGE_STEP,  # pixels from image to image
    ROW_STEP,
    OUT_FIRST,
    OUT_IMAGE_STEP,
    OUT_ROW_STEP,
    OUT_ROWS,  # for every pixel from 0 on, borders too, where it is written to; below 0 nowhere
    ZEROS,  # as many zeros as a pixel has outputs
    SUMS,  # room for twice 32 x 32 floats
    SHAPES,  # 64 bytes that configure the matrix unit, and room for as many
) = range(25)
NUM_FIELDS = 25
