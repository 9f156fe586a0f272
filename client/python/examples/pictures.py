"""Pictures of the examples' results. Requires matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import pyplot

# The same file for the same numbers, with text as text.
pyplot.rcParams["svg.hashsalt"] = "forebay"
pyplot.rcParams["svg.fonttype"] = "none"


def curves(path: Path, named: Mapping[str, Mapping[int, float]], axes_names: tuple[str, str], title: str) -> None:
    """Draw curves with logarithmic axes, each with its name at its end."""
    figure, axes = pyplot.subplots(figsize=(7.5, 4.5), layout="constrained")
    for name, points in named.items():
        axes.loglog(list(points), list(points.values()), marker="o", markersize=4, label=name)
    axes.set_xlabel(axes_names[0])
    axes.set_ylabel(axes_names[1])
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, facecolor="white")
    pyplot.close(figure)


def timelines(
    path: Path, named: Mapping[str, tuple[Sequence[tuple[float, float]], Sequence[tuple[float, float]]]]
) -> None:
    """Draw, for each name, the cores that the server used over time, and the steps below them on the same axis."""
    figure, panels = pyplot.subplots(
        len(named), figsize=(7.5, 1.8 * len(named) + 0.8), sharex=True, layout="constrained"
    )
    for axes, (name, (busy, steps)) in zip(panels, named.items(), strict=True):
        end = max(busy[-1][0], steps[-1][1])
        times, cores = [0.0, *(time for time, _ in busy)], [used for _, used in busy]
        axes.stairs(cores, times, fill=True, color="tab:blue", alpha=0.7, label="preparation: cores of the server")
        bars = [(begin, last - begin) for begin, last in merged(steps, gap=end / 500)]
        axes.broken_barh(bars, (-0.6, 0.4), color="tab:orange", label="training: steps")
        axes.axvline(steps[-1][1], color="black", linewidth=0.8, linestyle=":")
        axes.set_title(f"{name}: {steps[-1][1]:.2f} s", loc="left", fontsize="medium")
        axes.set_ylim(-0.8, max(1.2, *cores) * 1.1)
        axes.set_yticks(range(int(max(1.2, *cores)) + 1))
        axes.set_ylabel("cores")
    panels[-1].set_xlabel("seconds")
    panels[0].legend(loc="upper right", fontsize="small")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, facecolor="white")
    pyplot.close(figure)


def merged(intervals: Sequence[tuple[float, float]], *, gap: float) -> list[tuple[float, float]]:
    """Join intervals in order that are at most `gap` apart."""
    joined = [intervals[0]]
    for begin, end in intervals[1:]:
        if begin - joined[-1][1] <= gap:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((begin, end))
    return joined
