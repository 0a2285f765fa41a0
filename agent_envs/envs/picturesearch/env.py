"""PictureSearch: questions about a page that is shown too small to read, and a tool to zoom into it.

question  "What is written on the red crate marked with a star?"     answer  K7M2
call      {"name": "zoom", "arguments": {"left": 250, "top": 400, "right": 330, "bottom": 460}}

The real rows are those of V*Bench (Wu and Xie 2023) and HR-Bench (Wang et al. 2024).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agent_envs.checks import choice, integer
from agent_envs.datasets.generated_tasks import parse_families
from agent_envs.datasets.picturesearch.generated.pages import DEFAULT_LEVEL, FAMILIES, GeneratedPages
from agent_envs.datasets.picturesearch.generated.sheet import Box, PictureTask
from agent_envs.datasets.picturesearch.rows import LEAST, picture_rows, released_picture
from agent_envs.envs.answers import NO_ANSWER, judged
from agent_envs.envs.picturesearch.expert import misread, next_boxes, random_box
from agent_envs.envs.picturesearch.reward import is_right
from agent_envs.envs.picturesearch.view import DrawnPage, LargePicture, View, described, thousandths, window
from agent_envs.errors import ConfigError, ToolError
from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.per_process import PerProcess
from agent_envs.pictures.picture import Pictured
from agent_envs.rewards.tagged import tagged_answer
from agent_envs.tasks import TaskSource, file_stamps
from agent_envs.text_env import Outcome
from agent_envs.tool_env import ToolEnv
from agent_envs.tools import ToolResult

_SIZES = (128, 256, 512, 1024)
_SHOWN = 200  # characters of an answer that are repeated
_pages: PerProcess[LargePicture] = PerProcess(keep=256)  # about a megabyte each
_pictures: PerProcess[LargePicture] = PerProcess(keep=4)  # of files: tens of megabytes each


@dataclass(slots=True)
class _Progress:
    page: tuple[int, int]  # its width and height in pixels
    views: list[View]  # the pictures so far, the whole page first


class PictureSearchEnv(ToolEnv):
    """Answer a question about a page by zooming into it.

    ## Description
    A page of up to 4,096 pixels a side is shown as a picture of 256, in which what is asked for is too small to read.
    The tool `zoom` shows a part of the page. There are seven families of questions:
    - "find": read the code on one of many things in a yard, named by its colour, its mark, or what is beside it.
    - "compare": which of the things of one colour and kind has the largest number.
    - "count": how many icons of two kinds are in a field.
    - "follow": where a line ends that crosses others, or a way along the arrows of cards.
    - "chart": the value of a bar, between the labelled lines of its axis.
    - "table": a cell by the names of its row and its column.
    - "form": what is entered after a label, or which boxes are ticked.

    ## Action Space
    Any text. Tool calls in Hermes form, up to 4 a step, such as `<tool_call>{"name": "zoom", "arguments": {"left": 250,
    "top": 400, "right": 330, "bottom": 460}}</tool_call>`; or the final answer between `<answer>` tags, without which
    the last line is the answer. A box is given in thousandths of the width and the height of the page, or with
    `"picture": n` of the n-th picture of a zoom.

    ## Observation Space
    Text and pictures: the page and the question at reset; then for each call the part of the page that holds the box,
    and where it is. Each picture is a square of `size` pixels, less where the page ends: the smallest window of
    `size` pixels, of a half or a quarter of it, or of a power of two times it, that holds the box. Where the box
    leaves room, it begins at a multiple of 16 of its own pixels.

    `view="words"` shows the same in words: in place of each picture, the things in it with their boxes, and any writing
    that is large enough to be legible. Tasks, actions and rewards are the same.

    ## Starting State
    A task drawn from the split, or `options={"index": i}`.

    ## Rewards
    1 if the answer is the right one and nothing else, else 0. Case, blanks and punctuation do not matter, nor do words
    around numbers.

    ## Episode End
    Terminates with the first text without a call. Truncated after 24 steps.

    ## Information
    `task_id`, `split`, `index`, `source`, `anchor` (the question and the boxes that have been shown), `invalid_action`
    (a call that cannot be read, a box outside the picture, inverted or too small, no zoom left, or an empty answer),
    `score`, `success`, `reward_components` (`answer`), `tool_results` (list of `name`, `content`, `error`), `family`
    (of a released row its category), `zooms` (how many boxes have been shown).

    ## Arguments
    `gym.make("AgentR1/PictureSearch-v0", split="train", data="generated", level="1-5", families="all", size=256)`
    - `split`: "train", "validation" and "test"; of released rows a file is "all", and in a folder each file is a split.
    - `data`: "generated", or the path of V*Bench (its folder or `test_questions.jsonl`) or of HR-Bench (a
      .parquet, or a folder of them). Their pictures are read with Pillow: the extra `games`.
    - `level`: 1 (a few large things on a grid of 16 pixels, codes of two letters) to 5 (dozens that look alike, longer
      ways, tables of 60 rows), or a range such as "1-3".
    - `families`: "all", or names with commas between them.
    - `view`: "pictures" or "words", which released rows do not have.
    - `size`: the longest side of a picture in pixels: 128, 256, 512 or 1024. At 512 and more, low levels can be read
      without zooming.
    - `max_zooms`: boxes that may be shown in an episode.
    - `expert`: "explore", which looks at all that may be meant until it has found what is asked for, or "oracle", which
      looks only where the answer is. Both read what is legible without a mistake.
    - `parser`, `max_parallel_calls`, `tool_timeout`: see `ToolEnv`.

    ## Data
    Generated: 100,000 train, 1,000 validation and 1,000 test pages, drawn with letters and icons of this package in
    whole-number arithmetic, the same to the pixel on every machine. A code of three or more characters occurs
    in one split only.
    Released: multiple-choice questions about photographs, answered with the letter or the text of an option; they have
    no expert. V*Bench has 191, HR-Bench 800 of pictures of 4K and 800 of 8K.
    """

    instructions = (
        "Answer the question about the page. It is shown too small to read: zoom into it. A box is given in "
        "thousandths of the width and the height, from 0, 0 in the upper left corner to 1000, 1000. Write the final "
        "answer between <answer> and </answer>, and nothing else there."
    )
    settled_arguments = ("tools",)
    recorded_arguments = ("level", "families", "view", "size", "max_zooms", "expert")

    def __init__(
        self,
        *,
        level: int | str | Sequence[int] = DEFAULT_LEVEL,
        families: str | Iterable[str] = "all",
        view: str = "pictures",
        size: int = 256,
        max_zooms: int = 32,
        expert: str = "explore",
        max_parallel_calls: int = 4,
        **kwargs: Any,
    ) -> None:
        self.view = choice("view", view, ["pictures", "words"])
        self.size = choice("size", size, _SIZES)
        self.max_images = integer("max_parallel_calls", max_parallel_calls, minimum=1) if view == "pictures" else 0
        self.max_image_side = self.size
        super().__init__(tools=[self.zoom], max_parallel_calls=max_parallel_calls, **kwargs)
        self.level = level
        self.families = parse_families(families, FAMILIES)
        self.max_zooms = integer("max_zooms", max_zooms, minimum=1)
        self.expert = choice("expert", expert, ["explore", "oracle"])
        _ = self.tasks  # opened here, so that gym.make refuses a wrong split, level or path

    def open_tasks(self) -> TaskSource:
        if self.data == "generated":
            return GeneratedPages.shared(self.split, self.level, self.families)
        if self.level != DEFAULT_LEVEL or len(self.families) < len(FAMILIES):
            raise ConfigError(f"level and families are for generated pages; rows of {self.data!r} have none")
        if self.view == "words":
            raise ConfigError(f"view='words' is for generated pages; rows of {self.data!r} have pictures alone")
        return picture_rows(self.data, self.split)

    # -- the page ------------------------------------------------------------------------------------------------

    def zoom(self, left: int, top: int, right: int, bottom: int, picture: int = 0) -> Any:
        """Show a part of the page larger.

        Args:
            left: Left side of the box, in thousandths of the width: 0 to 1000.
            top: Upper side of the box, in thousandths of the height.
            right: Right side of the box, larger than left.
            bottom: Lower side of the box, larger than top.
            picture: The picture that the box is measured in: 0 is the whole page, 1 the first one shown by zoom.
        """
        views: list[View] = self.state.views
        if len(views) > self.max_zooms:
            raise ToolError(f"all {self.max_zooms} zooms are used; write the final answer")
        if not 0 <= picture < len(views):
            raise ToolError(f"picture must be from 0 to {len(views) - 1}, got {str(picture)[:20]}")
        for name, value in (("left", left), ("top", top), ("right", right), ("bottom", bottom)):
            if not 0 <= value <= 1000:
                raise ToolError(f"{name} must be from 0 to 1000, got {str(value)[:20]}")
        for low, high, lower, upper in (("left", "right", left, right), ("top", "bottom", top, bottom)):
            if lower >= upper:
                raise ToolError(f"{low} must be smaller than {high}, got {lower} and {upper}")
        box = _inside(views[picture].box, (left, top, right, bottom))
        if box[2] - box[0] < LEAST or box[3] - box[1] < LEAST:
            raise ToolError(f"the box is too small: it must hold at least {LEAST} x {LEAST} pixels of the page")
        width, height = self.state.page
        views.append(window(width, height, self.size, box))
        where = thousandths(self.state.page, views[-1].box)
        return self._joined(f"Picture {len(views) - 1} shows the box {where} of the page:\n", self._shown(views[-1]))

    def _joined(self, *parts: Any) -> Any:
        return Pictured(*parts) if self.max_images else "".join(parts)

    def _shown(self, view: View) -> Any:
        return self._picture().show(view) if self.max_images else described(self.task.sheet, view)

    def _picture(self) -> LargePicture:
        task: PictureTask = self.task
        if (sheet := task.sheet) is not None:
            return _pages.get(task.task_id, lambda: DrawnPage(sheet))
        of_file = task.task_id, task.picture, file_stamps([Path(task.picture[0])])
        return _pictures.get(of_file, lambda: LargePicture(released_picture(task).array))

    # -- the episode ---------------------------------------------------------------------------------------------

    def begin(self, task: PictureTask) -> tuple[Any, _Progress]:
        page = task.sheet or self._picture()
        width, height = page.width, page.height
        whole = window(width, height, self.size, (0, 0, width, height))
        said = self._joined(
            f"Picture 0 shows the whole page, {width} x {height} pixels:\n", self._shown(whole), f"\n{task.question}"
        )
        return said, _Progress((width, height), [whole])

    def after_tools(
        self, calls: Sequence[ToolCall | ParseFailure], results: Sequence[ToolResult], outcome: Outcome
    ) -> Outcome:
        outcome.invalid_action = outcome.invalid_action or any(result.error for result in results)
        return outcome

    def answer(self, text: str) -> Outcome:
        answer = tagged_answer(text)
        right = is_right(answer, self.task)
        said = " ".join(answer.split())[:_SHOWN]
        return judged(f"The answer was read as {said}." if said else NO_ANSWER, float(right), invalid=not said)

    def anchor(self) -> str:
        boxes = sorted({thousandths(self.state.page, view.box) for view in self.state.views[1:]})
        return "\n".join([self.task.question, *boxes])

    def right_answer(self) -> str:
        return ", ".join(self.task.answers)

    def prompt_state(self) -> dict[str, Any]:
        return {
            "question": self.task.question,
            "boxes": [thousandths(self.state.page, view.box) for view in self.state.views[1:]],
        }

    def info(self, outcome: Outcome) -> dict[str, Any]:
        return super().info(outcome) | {"family": self.task.family, "zooms": len(self.state.views) - 1}

    # -- experts -------------------------------------------------------------------------------------------------

    def expert_action(self) -> str | None:
        """Look where the answer is or may be, and answer when it has been seen; None for released rows."""
        if not self.task.stages:
            return None
        boxes = self._looked_for()
        return self._calls(boxes) if boxes else f"<answer>{self.right_answer()}</answer>"

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """Return the next action of a demonstrator that with probability `noise` looks anywhere or misreads."""
        if not self.task.stages or rng.random() >= noise:
            return self.expert_action()
        if self._looked_for() and rng.random() < 0.5:
            return self._calls([random_box(rng)])
        return f"<answer>{', '.join(misread(self.task.answers, rng))}</answer>"

    def _looked_for(self) -> list[Box]:
        views: list[View] = self.state.views
        most = min(self.max_parallel_calls, self.max_zooms + 1 - len(views))
        return next_boxes(self.task, views, self.size, most, oracle=self.expert == "oracle") if most else []

    def _calls(self, boxes: list[Box]) -> str:
        sides = ("left", "top", "right", "bottom")
        return "\n".join(self.format_call("zoom", dict(zip(sides, box, strict=True))) for box in boxes)


def _inside(view: Box, box: Box) -> Box:
    """Return a box that is given in thousandths of a view in pixels of the page, rounded outwards."""
    left, top, right, bottom = view
    width, height = right - left, bottom - top
    return (
        left + box[0] * width // 1000,
        top + box[1] * height // 1000,
        left - (-box[2] * width // 1000),
        top - (-box[3] * height // 1000),
    )
