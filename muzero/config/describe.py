"""The sentence of each setting: the string literal behind its field in the schema's source."""

import ast
import dataclasses
import inspect
import textwrap
from itertools import pairwise


def field_sentences(schema: type) -> dict[str, str]:
    """Sentence by field name, those of base classes included; a field without one is left out."""
    sentences: dict[str, str] = {}
    for base in reversed(schema.__mro__):
        if dataclasses.is_dataclass(base):
            sentences |= _own_sentences(base)
    return {
        field.name: sentences[field.name]
        for field in dataclasses.fields(schema)
        if field.name in sentences
    }


def _own_sentences(schema: type) -> dict[str, str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(schema)))
    definition = tree.body[0]
    assert isinstance(definition, ast.ClassDef)
    sentences = {}
    for statement, behind in pairwise(definition.body):
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        match behind:
            case ast.Expr(value=ast.Constant(value=str(text))):
                sentences[statement.target.id] = " ".join(text.split())
    return sentences
