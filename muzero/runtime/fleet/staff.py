"""How each role is made, and put to work with what it needs: a state from the checkpoint, its neighbours, the newest weights."""

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from muzero.checkpoint import Checkpoint, CheckpointError, CheckpointManager
from muzero.config.runtime import RayRuntimeConfig
from muzero.config.schema import Config
from muzero.learner import TrainingDiverged
from muzero.runtime.fleet import cut
from muzero.runtime.fleet.cluster import Cluster
from muzero.runtime.fleet.crew import Crew, Member
from muzero.runtime.fleet.hiring import LEARNER, SERVER, SHARD, STORE, WORKER, Hiring
from muzero.runtime.fleet.leasing import Leasing
from muzero.runtime.fleet.messages import ShardAddress
from muzero.runtime.fleet.models import ServerAddress
from muzero.runtime.fleet.serving import server_of

logger = logging.getLogger(__name__)

_RESTORE_SECONDS = 600.0  # a big replay takes its time


class Staff:
    """The fleet's members, each with its neighbours.

    Args:
        checkpoint: Where the run continues from; None starts afresh.
        tell: Says something to the user.
        on_learner_done: Is told the learner step at which training has come to its end.
        on_learner_rewound: Is told the learner step that a learner made anew begins with.
        on_member_lost: Is told of each member that is lost.
    """

    def __init__(
        self,
        config: Config,
        run_dir: Path,
        cluster: Cluster,
        checkpoint: Checkpoint | None,
        checkpoints: CheckpointManager,
        leasing: Leasing,
        *,
        tell: Callable[[str], None],
        on_learner_done: Callable[[int], None],
        on_learner_rewound: Callable[[int], None],
        on_member_lost: Callable[[Member], None],
    ) -> None:
        assert isinstance(config.runtime, RayRuntimeConfig)
        self._runtime = config.runtime
        self._checkpoint, self._checkpoints, self._leasing = checkpoint, checkpoints, leasing
        self._tell, self._on_learner_done = tell, on_learner_done
        self._on_learner_rewound = on_learner_rewound
        self._on_member_lost = on_member_lost
        self._hiring = Hiring(config, run_dir, cluster)
        self.num_workers = self._most_workers = self._hiring.first_workers
        self.crew = Crew(
            self._hiring.make,
            on_ready=self._on_ready,
            on_lost=self._on_lost,
            fatal=(TrainingDiverged,),
            max_failures=self._runtime.max_failures,
            seconds=self._runtime.deadline_seconds,
        )
        self.shards: dict[int, ShardAddress] = {}
        """Those that work."""
        self._servers: dict[int, ServerAddress] = {}
        self.confirmed: dict[int, int] = {}
        """Positions that each shard has confirmed, in all its incarnations."""
        self._had_server = False
        self.saved_confirmed: dict[int, int] = {}
        """What `confirmed` was when the checkpoint was made that the run continues from."""
        self.newest_version = -1
        """Highest version of any weights."""

    @property
    def store(self) -> Any:
        """The weight store's actor; None while there is none."""
        member = self.crew.get(STORE)
        return None if member is None else member.actor

    def hire(self) -> None:
        """Make everybody."""
        self.crew.add(STORE, 0)
        for index in range(self._runtime.num_replay_shards):
            self.crew.add(SHARD, index)
        self.crew.add(LEARNER, 0)
        if self._runtime.inference == "central":
            for index in range(self._runtime.num_inference_servers):
                self.crew.add(SERVER, index)
        for index in range(self.num_workers):
            self.crew.add(WORKER, index)

    @property
    def is_manned(self) -> bool:
        """Whether leases can be worked off: shards, weights, and servers if there are to be any."""
        needs_server = self._runtime.inference == "central" and not self._had_server
        return bool(self.shards) and self.store is not None and not needs_server

    def server(self, worker: int) -> ServerAddress | None:
        """The inference server of a worker; None while there is none."""
        return server_of(worker, [self._servers[index] for index in sorted(self._servers)])

    def most_workers(self) -> int:
        """Workers that the live nodes have room for."""
        return self._hiring.most_workers()

    def wanted_workers(self, decided: int) -> int:
        """Workers to have when the controller wishes for `decided`: the cores of a node that joins are used at once."""
        most = self._hiring.most_workers()
        joined, self._most_workers = most - self._most_workers, most
        if self._runtime.num_workers != "auto":
            return most
        if joined > 0:
            decided = max(decided, self.num_workers + joined)
        return max(1, min(decided, most))

    def set_workers(self, count: int) -> None:
        """Have so many workers: new ones are made, the last ones end once they have no lease."""
        self.num_workers = count
        workers = {member.index: member for member in self.crew.all(WORKER)}
        for index in range(count):
            if index not in workers:
                self._tell(f"search worker {index} joins")
                self.crew.add(WORKER, index)
        for index, member in workers.items():
            if index >= count and member.num_calls == 0:
                self._tell(f"search worker {index} leaves")
                self.crew.remove(member)

    def _on_ready(self, member: Member) -> None:
        """The constructor is through."""
        if member.role == SHARD:
            self._fill_shard(member)
        elif member.role == LEARNER:
            self._begin_learner(member)
        elif member.role == WORKER and self._checkpoint is not None and member.incarnation == 0:
            self._resume_worker(member, self._checkpoint)
        elif member.role == SERVER:
            self._open_server(member)
        else:
            member.serves = True
            if member.role == STORE:
                self.introduce()

    def _fill_shard(self, member: Member) -> None:
        checkpoint, index, actor = self._newest_checkpoint(member), member.index, member.actor
        since = 0

        def serve(inserted: int) -> None:
            self._settle_shard(member, inserted)
            member.serves = True
            self.shards[index] = ShardAddress(index, member.incarnation, actor)
            self.introduce()

        def recover(_: Any) -> None:
            # What a run that is resumed had logged behind its checkpoint was played by weights that are gone.
            inserted = actor.recover.remote(since if member.incarnation > 0 else None)
            self._call_long(member, "read its log", inserted, serve)

        if checkpoint is None:
            recover(None)
            return
        arrays, meta = cut.shard_state(checkpoint, index)
        since = meta["cut"] if meta["cut"] is not None else 0
        restored = actor.restore.remote(arrays, meta)
        self._call_long(member, "restore its positions", restored, recover)

    def _settle_shard(self, member: Member, inserted: int) -> None:
        """Compare what a shard has with what it had confirmed before: the rest is lost, and told."""
        index, limiter = member.index, self._leasing.limiter
        known = self.confirmed.get(index)
        self.confirmed[index] = inserted
        account = self._leasing.account
        if known is None:
            # The run begins, or is resumed: its checkpoint's shards were cut a moment earlier than the rest.
            change = inserted - self.saved_confirmed.get(index, inserted)
            account.inserted += change
            limiter.settle(0, change)
            return
        if inserted >= known:
            # The rest was confirmed to a worker that died before it could tell.
            account.inserted += inserted - known
            limiter.settle(0, inserted - known)
            self._tell(f"{member.name} is back with all of its positions")
        else:
            account.lost += known - inserted
            self._tell(f"{member.name} is back; {known - inserted:,} of its positions are lost")

    def settle_all(self, inserted: dict[int, int]) -> None:
        """Count what shards have confirmed to workers that died before they could tell; no lease is out any more."""
        for index, count in inserted.items():
            untold = count - self.confirmed.get(index, 0)
            self.confirmed[index] = count
            self._leasing.account.inserted += untold
            self._leasing.limiter.settle(0, untold)

    def _begin_learner(self, member: Member) -> None:
        """Have the learner begin; one made anew with versions above any that were published, which the store knows best."""
        store = next(iter(self.crew.serving(STORE)), None)
        incarnation = member.incarnation
        if member.incarnation == 0 or store is None:
            self._run_learner(member)
            return

        def note(version: int | None) -> None:
            self.newest_version = max(self.newest_version, -1 if version is None else version)
            begin()

        def begin() -> None:
            if member.incarnation == incarnation and member.actor is not None:
                self._run_learner(member)

        self.crew.call(
            store,
            "tell its version",
            store.actor.version.remote(),
            note,
            failed=begin,
        )

    def _run_learner(self, member: Member) -> None:
        checkpoint, actor = self._newest_checkpoint(member), member.actor
        newest = self.newest_version
        if checkpoint is not None:
            tensors, meta = cut.learner_arrays(checkpoint)
            offset = int(checkpoint.json("state")["version_offset"])
            begun = actor.restore.remote(tensors, meta, offset, newest)
            if member.incarnation > 0:
                self._tell(f"the learner goes on from learner step {checkpoint.step}")
                self._on_learner_rewound(checkpoint.step)
        elif member.incarnation > 0:
            begun = actor.start_over.remote(newest)
            self._tell("the learner begins anew: there is no checkpoint yet")
            self._on_learner_rewound(0)
        else:
            begun = actor.memory_bytes.remote()

        def run(_: Any) -> None:
            member.serves = True
            self.crew.call(
                member, "train", actor.run.remote(), self._on_learner_done, seconds=math.inf
            )

        def connect(_: Any) -> None:
            self.crew.call(member, "connect", self._connect(actor), run)

        self._call_long(member, "begin", begun, connect)

    def _resume_worker(self, member: Member, checkpoint: Checkpoint) -> None:
        saved = cut.worker_state(checkpoint, member.index)
        if saved is None:
            member.serves = True
            return

        def serve(fits: bool) -> None:
            if not fits:
                self._tell(f"{member.name}: its saved games do not fit, new ones begin")
            member.serves = True

        self._call_long(member, "restore its games", member.actor.restore.remote(*saved), serve)

    def _call_long(
        self, member: Member, what: str, reference: Any, then: Callable[[Any], None]
    ) -> None:
        self.crew.call(member, what, reference, then, seconds=_RESTORE_SECONDS)

    def _open_server(self, member: Member) -> None:
        def serve(answer: tuple[str, Any]) -> None:
            member.serves = self._had_server = True
            node, ticket = answer
            self._servers[member.index] = ServerAddress(
                member.index, member.incarnation, member.actor, node, ticket
            )
            self.introduce()

        self.crew.call(member, "open", member.actor.ticket.remote(), serve)

    def introduce(self) -> None:
        """Tell the learner, the servers and the store who is there."""
        store = self.store
        if store is not None:
            for server in self.crew.serving(SERVER):
                server.actor.set_store.remote(store)
            store.set_servers.remote([self._servers[index] for index in sorted(self._servers)])
        learner = self.crew.get(LEARNER)
        if learner is not None:
            self.crew.call(learner, "connect", self._connect(learner.actor), lambda _: None)

    def _connect(self, learner: Any) -> Any:
        shards = [self.shards[index] for index in sorted(self.shards)]
        return learner.connect.remote(shards, self.store)

    def _on_lost(self, member: Member, reason: str) -> None:
        self._tell(f"{member.name} is lost: {reason.strip().splitlines()[-1]}")
        logger.debug("%s is lost: %s", member.name, reason)
        if member.role == SHARD:
            self.shards.pop(member.index, None)
            self.introduce()
        elif member.role == SERVER:
            self._servers.pop(member.index, None)
            self.introduce()
        self._on_member_lost(member)

    def _newest_checkpoint(self, member: Member) -> Checkpoint | None:
        """Where a member begins: the run's own starting point, or for one that was lost the newest checkpoint."""
        if member.incarnation == 0:
            return self._checkpoint
        try:
            self._checkpoints.wait()
        except CheckpointError as error:  # of a save that is going on: those before it are there
            self._tell(str(error))
        try:
            return self._checkpoints.newest_valid()
        except CheckpointError as error:
            self._tell(str(error))
            return self._checkpoint
