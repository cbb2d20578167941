"""Line charts as SVG, written by hand: readable on light and on dark pages, the same bytes from the same numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 720, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 150, 42, 48
_COLOURS: Final = ("#2f6fbf", "#c2571a", "#2e8b57", "#8a4fbf")
_STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#333}.t{font-size:14px;font-weight:600}.g{stroke:#8884;stroke-width:1}"
    ".l{fill:none;stroke-width:2}.m{stroke:#888;stroke-width:1;stroke-dasharray:5 4}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}}"
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line, with the points that were recorded marked."""

    name: str
    points: Sequence[tuple[float, float]]
    marked: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over two axes that both begin at 0."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    x_ticks: Sequence[float]
    y_ticks: Sequence[float]
    limits: Sequence[tuple[str, float]] = ()
    """Horizontal lines, each with its name."""

    def svg(self) -> str:
        """The picture."""
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
            f"<title>{escape(self.title)}</title>",
            f"<style>{_STYLE}</style>",
            _text(_LEFT, 18, self.title, kind="t"),
            _text(_LEFT, 34, self.y),
            _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, self.x, anchor="middle"),
        ]
        across, up = self._across, self._up
        for tick in self.y_ticks:
            parts.append(_line(across(0), up(tick), _WIDTH - _RIGHT, up(tick), "g"))
            parts.append(_text(_LEFT - 8, up(tick) + 4, f"{tick:,g}", anchor="end"))
        below = _HEIGHT - _BOTTOM + 18
        parts += [_text(across(tick), below, f"{tick:,g}", anchor="middle") for tick in self.x_ticks]
        taken: list[float] = []
        for name, value in self.limits:
            parts.append(_line(across(0), up(value), _WIDTH - _RIGHT, up(value), "m"))
            parts.append(_text(_WIDTH - _RIGHT + 6, _free(up(value) + 4, taken), name))
        for line, colour in zip(self.lines, _COLOURS, strict=False):
            path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in line.points)
            parts.append(f'<polyline class="l" stroke="{colour}" points="{path}"/>')
            parts += [f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="4" fill="{colour}"/>' for x, y in line.marked]
            place = _free(up(line.points[-1][1]) + 4, taken)
            parts.append(_text(_WIDTH - _RIGHT + 6, place, line.name, colour=colour))
        return "\n".join([*parts, "</svg>", ""])

    @property
    def _across(self) -> Callable[[float], float]:
        return lambda x: _LEFT + x / max(self.x_ticks) * (_WIDTH - _LEFT - _RIGHT)

    @property
    def _up(self) -> Callable[[float], float]:
        return lambda y: _HEIGHT - _BOTTOM - y / max(self.y_ticks) * (_HEIGHT - _TOP - _BOTTOM)


def _free(wanted: float, taken: list[float]) -> float:
    """The place for a name that is nearest and covers no other."""
    offsets = (sign * 14.0 * step for step in range(12) for sign in (1, -1))
    place = next(wanted + offset for offset in offsets if all(abs(wanted + offset - other) >= 13.5 for other in taken))
    taken.append(place)
    return place


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", kind: str = "", colour: str = "") -> str:
    more = (f' class="{kind}"' if kind else "") + (f' style="fill:{colour}"' if colour else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'
