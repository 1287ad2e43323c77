"""Options of commands that can run on a Ray cluster: the same names, the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from alembert.workers.ray import RayCluster

On = Annotated[str, typer.Option(metavar="PLACE", help="Where the work is done: local or ray.")]
RayAddress = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address of a running Ray cluster; RAY_ADDRESS if not given; without either, one is started on this machine.",
    ),
]
WorkerCpus = Annotated[int | None, typer.Option(min=1, max=1024, help="CPUs of each worker on Ray; 1 if not given.")]


def cluster_of(on: str, workers: int | None, worker_cpus: int | None, address: str | None) -> RayCluster | None:
    """Give the cluster that was asked for; None: this machine, without one."""
    from alembert.errors import BadSetting
    from alembert.workers.ray import RayCluster, check_ray_installed

    if on == "ray":
        check_ray_installed()
        return RayCluster(address=address, workers=workers, cpus=worker_cpus or 1)
    if on != "local":
        raise BadSetting(f"`--on` is {on!r}; expected local or ray.")
    if worker_cpus is not None or address is not None:
        raise BadSetting("`--worker-cpus` and `--ray-address` are for a cluster: add --on ray, or leave them out.")
    return None
