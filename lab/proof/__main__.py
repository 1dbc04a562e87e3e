"""`python -m lab.proof full|short FILE`, inside a network of the lab's own: runs the proof and writes its
findings.
"""

import argparse
import json
import threading
import time
from pathlib import Path
from typing import Any, get_args

from eurekube_provider.kube.access import MERGE_PATCH_TYPE, NODES, PODS
from lab.progress import say
from lab.proof import ProofVariant
from lab.proof.bystanders import UncalledPods
from lab.proof.calls import CallTally, tally_calls
from lab.proof.findings import make_finding, make_report
from lab.proof.form import PROOF_SETTINGS
from lab.proof.stage import NODES_BY_POOL, Stage
from lab.proof.subjects import Scenario, Strategy, Subject
from lab.proof.witness import Witness
from lab.workloads import DEPLOYMENTS, wait_for

_KILL_BEFORE_STEP_SECONDS = 1.0
_WARM_UP_TIMEOUT_SECONDS = 120.0
_EXTRA_TIMEOUT_SECONDS = 120.0


class ParallelDisturbances:
    """The disturbances on a stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._settings = stage.settings
        self.began = time.time()
        self.events: list[tuple[float, str]] = []

    def run(self) -> None:
        """Begin all disturbances at once, and wait until every pod that must go is gone."""
        self.began = time.time()
        known = {id(life) for life in self._stage.lab.kubernetes.kubelet.lives}
        later = threading.Thread(target=self._kill_leader_again, args=(known,), daemon=True)
        if Scenario.OPERATOR in self._scenarios:
            self._record_event(f"{self._stage.kill_leader()} killed")
        for subject in self._settings.subjects:
            self._begin_rollout_or_scale_down(subject)
        self._drain_node()
        later.start()
        if Scenario.PEER in self._scenarios:
            self._restart_peer()
        later.join()
        self._wait_for_rollouts()
        self._record_event("every pod that was to go is gone")
        time.sleep(self._settings.settle_seconds)

    @property
    def _scenarios(self) -> set[Scenario]:
        return {subject.scenario for subject in self._settings.subjects}

    def _record_event(self, what: str) -> None:
        self.events.append((time.time() - self.began, what))
        say(f"{self.events[-1][0]:6.1f} s: {what}")

    def _begin_rollout_or_scale_down(self, subject: Subject) -> None:
        path = DEPLOYMENTS.path(subject.scenario.namespace, subject.name)
        body: dict[str, Any] = {"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}}
        if subject.scenario is Scenario.SCALED:
            body = {"spec": {"replicas": self._settings.replicas // 2}}
        if subject.scenario in (Scenario.DRAINED, Scenario.UNDISTURBED):
            return  # of the former, all of that node together
        self._stage.cluster.access.request("PATCH", path, body=body, content_type=MERGE_PATCH_TYPE)
        self._record_event(f"{subject.name}: {subject.scenario}")

    def _drain_node(self) -> None:
        """Drain a node as `kubectl drain` does: cordon it and evict every pod."""
        node, access = NODES_BY_POOL["drained"][0], self._stage.cluster.access
        if Scenario.DRAINED not in self._scenarios:
            return
        cordon = {"spec": {"unschedulable": True}}
        access.request("PATCH", NODES.path(None, node), body=cordon, content_type=MERGE_PATCH_TYPE)
        pods = access.get(PODS.path(), {"fieldSelector": f"spec.nodeName={node}"})["items"]
        for pod in pods:
            metadata = {key: pod["metadata"][key] for key in ("namespace", "name")}
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
            access.request(
                "POST", PODS.path(metadata["namespace"], metadata["name"], "eviction"), body=eviction
            )
        self._record_event(f"{node} drained of {len(pods)} pods")

    def _restart_peer(self) -> None:
        """Restart the Eureka server that every client and the operator ask first."""
        (first, *_) = self._stage.disturbed.eurekas
        self._record_event("Eureka peer goes down")
        first.restart()
        self._record_event("Eureka peer is back")

    def _kill_leader_again(self, known: set[int]) -> None:
        """Kill the leading operator again, just before the rollout of Eurekube's own strategy takes its
        next step.
        """
        subject = Subject(Scenario.OPERATOR, Strategy.EUREKUBE_DRAIN)
        if subject not in self._settings.subjects:
            return

        def first_new_pod_ready_at() -> float | None:
            ready = [
                life.ready_at
                for life in list(self._stage.lab.kubernetes.kubelet.lives)
                if life.labels.get("app") == subject.name and id(life) not in known and life.ready_at
            ]
            return min(ready) if ready else None

        step = wait_for(first_new_pod_ready_at, "a new pod", _EXTRA_TIMEOUT_SECONDS)
        step += self._settings.drain.min_ready_seconds - _KILL_BEFORE_STEP_SECONDS
        killed = self.events[0][1].split()[0]
        self._stage.start_operator(killed, Scenario.OPERATOR)
        self._record_event(f"{killed} is back")
        time.sleep(max(0.0, step - time.time()))
        self._record_event(f"{self._stage.kill_leader()} killed")

    def _wait_for_rollouts(self) -> None:
        """Wait until every Deployment has reached its target, and every deleted pod is gone."""
        steps = self._settings.replicas + 1
        longest = steps * self._settings.drain.grace_period_seconds() + _EXTRA_TIMEOUT_SECONDS

        def is_over() -> bool:
            return not self._stage.lab.kubernetes.kubelet.has_ending_pods and self._are_rollouts_complete()

        wait_for(is_over, "the rollouts to end", longest)

    def _are_rollouts_complete(self) -> bool:
        """Return whether every Deployment has reached its target."""
        for subject in self._settings.subjects:
            item = self._stage.cluster.get(DEPLOYMENTS, subject.name, subject.scenario.namespace) or {}
            wanted, status = item["spec"]["replicas"], item.get("status") or {}
            reached = {status.get(key) for key in ("replicas", "updatedReplicas", "readyReplicas")}
            if reached != {wanted} or status.get("observedGeneration") != item["metadata"]["generation"]:
                return False
        return True


def main() -> None:
    """Run the proof and write its report."""
    parser = argparse.ArgumentParser(prog="python -m lab.proof", description=__doc__)
    parser.add_argument("variant", choices=get_args(ProofVariant))
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    settings = PROOF_SETTINGS[arguments.variant]
    with Stage(settings) as stage:
        lives = stage.lab.kubernetes.kubelet.lives
        bystanders = UncalledPods(stage.cluster, lives)
        counted_from = _wait_for_answered_calls(stage)
        bystanders.delete()
        disturbances = ParallelDisturbances(stage)
        with Witness(stage.eureka_urls(), lives) as witness:
            disturbances.run()
            stage.stop_callers()
        ended, brake_notes = bystanders.wait_for_ends(), stage.read_brake_notes()
        calls = tally_calls(stage.call_files, counted_from)
        findings = [
            make_finding(
                subject,
                settings,
                calls.get(subject.name, CallTally()),
                lives,
                disturbances.began,
                witness.find_server_views,
            )
            for subject in settings.subjects
        ]
        report = make_report(findings, settings, disturbances.events)
    report |= {"braked": brake_notes, "bystanders": ended}
    arguments.file.write_text(json.dumps(report))


def _wait_for_answered_calls(stage: Stage) -> float:
    """Wait until every call in a span of time was answered; return the span's beginning (seconds since
    1970).
    """
    settings = stage.settings

    def are_all_good() -> bool:
        time.sleep(1.0)
        calls = tally_calls(stage.call_files, time.time() - settings.warm_up_seconds)
        wanted = settings.calls_per_second * settings.warm_up_seconds / 2
        return len(calls) == len(settings.subjects) and all(
            not one.failures and min(one.calls.values()) >= wanted for one in calls.values()
        )

    wait_for(are_all_good, "every application to answer", _WARM_UP_TIMEOUT_SECONDS)
    return time.time() - settings.warm_up_seconds


if __name__ == "__main__":
    main()
