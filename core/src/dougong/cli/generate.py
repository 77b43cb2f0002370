"""``dougong generate``: one prompt or question, answered on the standard output as it comes."""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dougong.cli.engine_options import with_engine_options
from dougong.cli.measured import memory_line, peak_host_bytes
from dougong.cli.sampling_options import with_sampling_options
from dougong.config.args import CommandDefault, EngineArgs
from dougong.config.decision import command_author
from dougong.errors import ConfigError
from dougong.messages.request import SamplingParams

if TYPE_CHECKING:
    from dougong.engine.llm import LLM
    from dougong.messages import RequestOutput, TokenLogprobs

app = typer.Typer(add_completion=False)

_EPILOG = (
    "Examples: dougong generate --chat 'Why is the sky blue?'; "
    "dougong generate --model ./my-model 'Once upon a time' --max-tokens 64 --temperature 0.8"
)


@app.command(epilog=_EPILOG)
@with_engine_options
@with_sampling_options
def generate(
    args: EngineArgs,
    params: SamplingParams,
    text: Annotated[str | None, typer.Argument(metavar="PROMPT", help="Text to continue.")] = None,
    prompt: Annotated[str | None, typer.Option(help="The same, as an option.")] = None,
    chat: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A question, in the model's chat template.")
    ] = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="System message before the question.")
    ] = None,
    chat_template: Annotated[
        str | None, typer.Option(help="File or Jinja text, instead of the model's own.")
    ] = None,
    is_streaming: Annotated[
        bool, typer.Option("--stream/--no-stream", help="Print text as it comes.")
    ] = True,
    is_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    is_verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log every decision of the start.")
    ] = False,
) -> None:
    """Answer one prompt. Text goes to the standard output, a summary of the run to the other."""
    if not is_json and not (params.logprobs is params.prompt_logprobs is None):
        raise ConfigError("--logprobs and --prompt-logprobs are shown with --json; add it.")
    if len(args.lora or ()) > 1:
        raise ConfigError("One prompt is answered with one adapter; give --lora once.")
    asked = _what_was_asked(text, prompt, chat, system, chat_template)
    quiet_start(is_verbose)
    one = CommandDefault("max_num_seqs", 1, command_author("generate"), "it answers one prompt")
    with open_llm(args, one, chat_template=chat_template) as llm:
        lora = next(iter(llm.loras()), None)
        outputs = (
            llm.stream(asked, params, lora=lora)
            if isinstance(asked, str)
            else llm.stream_chat(asked, params, lora=lora)
        )
        output = _print_text(outputs, is_streaming=is_streaming and not is_json)
        if not (is_streaming or is_json):
            print(output.outputs[0].text)
        summary = summarise(llm, output)
        if is_json:
            print(json.dumps(_to_json(llm, output, summary), indent=2, ensure_ascii=False))
        else:
            _print_summary(llm, summary)


def open_llm(args: EngineArgs, *defaults: CommandDefault, chat_template: str | None = None) -> LLM:
    """The model in this process, with what the command takes where the user left it open."""
    from dougong.engine.llm import LLM

    return LLM.from_args(replace(args, defaults=defaults), chat_template=chat_template)


def quiet_start(is_verbose: bool) -> None:
    """Keep the start report out of a log at its usual level; the summary says what matters."""
    logger = logging.getLogger("dougong.engine.core")
    if not is_verbose and logger.getEffectiveLevel() == logging.INFO:
        logger.setLevel(logging.WARNING)


def summarise(llm: LLM, output: RequestOutput) -> dict[str, Any]:
    """Numbers of one answer; seconds and tokens per second."""
    metrics = output.metrics
    first = (metrics.first_token_s or metrics.arrival_s) - metrics.arrival_s
    whole = (metrics.finished_s or metrics.arrival_s) - metrics.arrival_s
    num_tokens = sum(len(one.token_ids) for one in output.outputs)
    return {
        "num_prompt_tokens": len(output.prompt_token_ids),
        "num_output_tokens": num_tokens,
        "time_to_first_token_s": first,
        "total_s": whole,
        "output_tokens_per_s": num_tokens / whole if whole else 0.0,
        "decode_tokens_per_s": (num_tokens - 1) / (whole - first) if whole > first else 0.0,
        "start_s": sum(llm.report.seconds.values()),
        "peak_host_bytes": peak_host_bytes(),
    }


def _what_was_asked(
    text: str | None,
    prompt: str | None,
    chat: str | None,
    system: str | None,
    chat_template: str | None,
) -> str | list[dict[str, str]]:
    given = [one for one in (text, prompt, chat) if one is not None]
    if len(given) != 1:
        raise ConfigError(
            f"{len(given)} prompts were given. Give one: a PROMPT to continue, or --chat TEXT to "
            "ask; `dougong generate --help` has examples."
        )
    if chat is None:
        if system is not None:
            raise ConfigError("--system goes with --chat; a plain prompt has no system message.")
        if chat_template is not None:
            raise ConfigError("--chat-template goes with --chat; a plain prompt is taken as it is.")
        return given[0]
    before = [] if system is None else [{"role": "system", "content": system}]
    return [*before, {"role": "user", "content": chat}]


def _print_text(outputs: Iterator[RequestOutput], *, is_streaming: bool) -> RequestOutput:
    output, num_shown = None, 0
    for output in outputs:
        if is_streaming:
            text = output.outputs[0].text
            print(text[num_shown:], end="", flush=True)
            num_shown = len(text)
    assert output is not None, "a request ends with an output or an error"
    if is_streaming:
        print(flush=True)
    return output


def _print_summary(llm: LLM, summary: dict[str, Any]) -> None:
    report = llm.report
    lines = (
        f"{summary['num_output_tokens']} tokens in {summary['total_s']:.2f} s: "
        f"{summary['output_tokens_per_s']:.1f} tokens/s "
        f"({summary['decode_tokens_per_s']:.1f} after the first, which took "
        f"{summary['time_to_first_token_s']:.2f} s); {summary['num_prompt_tokens']} prompt tokens",
        f"platform {report.platform} ({', '.join(report.devices)}), dtype {report.dtype}, "
        f"start {summary['start_s']:.1f} s",
        f"memory: {memory_line(report)}",
    )
    print("\n" + "\n".join(lines), file=sys.stderr, flush=True)


def _to_json(llm: LLM, output: RequestOutput, summary: dict[str, Any]) -> dict[str, Any]:
    one = output.outputs[0]
    return {
        "text": one.text,
        "token_ids": one.token_ids,
        "finish_reason": one.finish_reason,
        "stop_reason": one.stop_reason,
        "prompt": output.prompt,
        "prompt_token_ids": list(output.prompt_token_ids),
        "logprobs": one.logprobs and [_logprobs(entry) for entry in one.logprobs],
        "prompt_logprobs": output.prompt_logprobs
        and [entry and _logprobs(entry) for entry in output.prompt_logprobs],
        "metrics": summary,
        "platform": llm.report.platform,
        "dtype": llm.report.dtype,
        "memory": asdict(llm.report.memory),
        "start": llm.report.to_json(),
    }


def _logprobs(entry: TokenLogprobs) -> dict[str, Any]:
    """Of the token itself, and of the likeliest ones by id; ``null`` is minus infinity."""
    top = {str(token_id): _finite(logprob) for token_id, logprob in entry.top}
    return {"token_id": entry.token_id, "logprob": _finite(entry.logprob), "top": top}


def _finite(logprob: float) -> float | None:
    return logprob if math.isfinite(logprob) else None
