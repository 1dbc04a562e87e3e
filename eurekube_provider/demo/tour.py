"""The command ``eurekube demo``: the whole story on servers in this process."""

from __future__ import annotations

import errno
import logging
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from eurekube_provider.core.errors import EurekubeError
from eurekube_provider.demo.interruption import Interrupted, InterruptionHandler
from eurekube_provider.demo.stage import StoryFailed

if TYPE_CHECKING:
    from eurekube_provider.demo.embedded import EmbeddedStage
    from eurekube_provider.demo.story import Story

CLOSING_TEXT = """\
The same on real servers, a Eureka by Spring and a kube-apiserver with its
controllers, from a clone of the repository: make demo-real (Go, Java 17, Maven)"""


def run_demo(*, keep: bool, picture: Path | None) -> int:
    """Play the demo's story on servers in this process.

    :param keep: leave out the end, and keep all servers running until somebody interrupts.
    :returns: 0 when every check held, 1 when one failed, 130 after an interruption.
    """
    began = time.monotonic()
    logging.getLogger("eurekube_provider").addHandler(logging.NullHandler())
    with InterruptionHandler() as interruption:
        try:
            check_count = _run_story(interruption, keep=keep, picture=picture)
        except (StoryFailed, EurekubeError) as error:
            print(f"demo FAILED: {error}", file=sys.stderr)
            return 1
        except Interrupted:
            print("\ninterrupted; nothing is left running", file=sys.stderr)
            return 130
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return 130  # the terminal is closed
    print(f"\ndemo passed: {check_count} checks in {time.monotonic() - began:.1f} s\n\n{CLOSING_TEXT}")
    return 0


def _run_story(interruption: InterruptionHandler, *, keep: bool, picture: Path | None) -> int:
    from eurekube_provider.demo.embedded import EmbeddedStage  # takes a second: a signal may come meanwhile
    from eurekube_provider.demo.story import Story, environment_without_foreign_servers

    for name in os.environ.keys() - environment_without_foreign_servers().keys():
        del os.environ[name]
    with ExitStack() as resources:
        interruption.pause()
        directory = resources.enter_context(tempfile.TemporaryDirectory(prefix="eurekube-demo-"))
        stage = resources.enter_context(EmbeddedStage(Path(directory), interruption))
        story = Story(stage, picture)
        resources.callback(story.close)
        story.deploy_and_start_operator()
        story.play_steps(keep=keep)
        if keep:
            _keep_running_until_interrupted(stage, story, interruption)
        else:
            story.take_program_down()
        story.print_summary()
        return story.check_count


def _keep_running_until_interrupted(
    stage: EmbeddedStage, story: Story, interruption: InterruptionHandler
) -> None:
    """Print the URLs of the running servers, and wait until somebody interrupts."""
    for url in stage.eureka_urls:
        print(f"\nEureka      {url.removesuffix('/eureka')}/")
    print(f"Operator    http://127.0.0.1:{story.operator_port()}/  (status page)\n")
    print(f"export KUBECONFIG={stage.kubeconfig} EUREKA_URL={','.join(stage.eureka_urls)}")
    print("eurekube status     in another terminal; Ctrl-C here ends all of it", flush=True)
    while True:
        interruption.pause(1.0)
