//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

// obstacle is a fault that hinders the reset of a worker.
type obstacle struct {
	name string
	// run removes the worker and returns when its host is the same as before.
	run func(ctx context.Context, w workload, before surveys)
}

func obstacles() []obstacle {
	return []obstacle{
		{"a mount is busy, and kubelet, runtime, containers and others hang", resetHung},
		{"a mount is busy, and the host cannot reboot at first", resetWithoutReboot},
		{"the agent is killed and the power fails at each step", resetInterrupted},
		{"a file cannot be removed", resetStuck},
	}
}

// holdMount starts a process outside of all Pods that works in a Pod's volume.
const holdMount = `set -e
volume=$(findmnt --noheadings --list --output TARGET | grep 'kubernetes.io~empty-dir/memory$')
cd "$volume"
setsid sh -c 'exec 3>held; while :; do sleep 1; done' >/dev/null 2>&1 </dev/null &
pid=$!
until [ -e held ]; do sleep 0.1; done
`

func resetHung(ctx context.Context, w workload, before surveys) {
	GinkgoHelper()
	box := w.workerBox(ctx)
	// A stopped process does not respond, and it receives no signal except SIGKILL.
	shell(ctx, box, holdMount+`kill -STOP $pid $(pgrep -x kubelet) $(pgrep containerd-shim) $(pgrep -f "[/]disk/log")`)
	w.removeWorker(ctx)
	expectAvailable(ctx, box)
	before.expectSame(ctx, box)
}

// resetWithoutReboot disables the agent. The agent then refuses to reboot, because it would not
// start again to continue the reset.
func resetWithoutReboot(ctx context.Context, w workload, before surveys) {
	GinkgoHelper()
	box := w.workerBox(ctx)
	shell(ctx, box, holdMount+`systemctl disable elemental-agent`)
	w.removeWorker(ctx)
	expectNotClean(ctx, box, "kubepods", "enable it")
	shell(ctx, box, "systemctl enable elemental-agent")
	expectAvailable(ctx, box)
	before.expectSame(ctx, box)
}

func resetInterrupted(ctx context.Context, w workload, before surveys) {
	GinkgoHelper()
	box := w.workerBox(ctx)
	putFaults(ctx, box)
	w.removeWorker(ctx)
	expectAvailable(ctx, box)
	expectFaults(ctx, box)
	before.expectSame(ctx, box)
}

// resetStuck makes the reset fail until the immutable file is made mutable.
func resetStuck(ctx context.Context, w workload, before surveys) {
	GinkgoHelper()
	box := w.workerBox(ctx)
	const stuck = "/var/lib/kubelet/pki/stuck"
	shell(ctx, box, "touch "+stuck+" && chattr +i "+stuck)
	w.removeWorker(ctx)
	expectNotClean(ctx, box, stuck)
	shell(ctx, box, "chattr -i "+stuck)
	expectAvailable(ctx, box)
	before.expectSame(ctx, box)
}

// expectNotClean waits until the host's Clean condition names the obstacle, and checks that the
// host does not become available.
func expectNotClean(ctx context.Context, box *engine.Host, names ...string) {
	GinkgoHelper()
	var message string
	Eventually(func(g Gomega) {
		condition := meta.FindStatusCondition(hostOf(ctx, box).Status.Conditions, infrav1.CleanCondition)
		g.Expect(condition).NotTo(BeNil())
		message = condition.Message
		for _, name := range names {
			g.Expect(message).To(ContainSubstring(name))
		}
	}).WithTimeout(resetTimeout).WithPolling(300 * time.Millisecond).Should(Succeed())
	fmt.Printf("  %s\n", message)
	Consistently(func(g Gomega) {
		host := hostOf(ctx, box)
		g.Expect(meta.IsStatusConditionTrue(host.Status.Conditions, infrav1.CleanCondition)).To(BeFalse())
		g.Expect(meta.IsStatusConditionTrue(host.Status.Conditions, infrav1.AvailableCondition)).To(BeFalse())
	}).WithTimeout(5 * time.Second).WithPolling(200 * time.Millisecond).Should(Succeed())
}

const (
	faultUnit  = "/etc/systemd/system/lab-fault.service"
	faultWants = "/etc/systemd/system/multi-user.target.wants/lab-fault.service"
	faultDir   = "/var/lib/lab-fault"
)

// faults returns the faults in order: the phase of the reset, the delay in seconds, and what
// fails.
func faults() []string {
	return []string{"stop 0 agent", "reboot 0 power", "clean 0 agent", "clean 0.1 power", "clean 0.05 agent"}
}

// faultScript causes each fault once, over all reboots, when the agent has recorded the phase. The
// agent that the script killed last does not count as running.
const faultScript = `#!/bin/bash
cd ` + faultDir + `
mapfile -t faults < faults
done=$(cat done 2>/dev/null || echo 0)
killed=
while [ "$done" -lt "${#faults[@]}" ]; do
	read -r phase delay what <<<"${faults[done]}"
	pid=$(systemctl show --property MainPID --value elemental-agent)
	if [ "$pid" = 0 ] || [ "$pid" = "$killed" ] ||
		! grep --quiet --no-messages "\"phase\": \"$phase\"" /var/lib/elemental/agent/*/*/reset.json; then
		continue
	fi
	sleep "$delay"
	echo $((++done)) >done
	case $what in
	agent) kill -KILL "$pid" && killed=$pid ;;
	power) systemctl --force --force reboot ;;
	esac
done
`

// faultService is the unit of the script. systemd does not stop it at shutdown.
const faultService = `[Unit]
Description=Faults of a test
DefaultDependencies=no
[Service]
ExecStart=` + faultDir + `/run
`

func putFaults(ctx context.Context, box *engine.Host) {
	GinkgoHelper()
	Expect(box.Put(ctx,
		engine.File{Path: faultDir + "/run", Mode: 0o755, Content: []byte(faultScript)},
		engine.File{Path: faultDir + "/faults", Mode: 0o644, Content: []byte(strings.Join(faults(), "\n") + "\n")},
		engine.File{Path: faultUnit, Mode: 0o644, Content: []byte(faultService)},
	)).To(Succeed())
	shell(ctx, box, "ln -s "+faultUnit+" "+faultWants+" && systemctl daemon-reload && systemctl start lab-fault")
}

// expectFaults checks that all faults happened, and removes the unit.
func expectFaults(ctx context.Context, box *engine.Host) {
	GinkgoHelper()
	out, err := box.Exec(ctx, "cat", faultDir+"/done")
	Expect(err).NotTo(HaveOccurred())
	Expect(strings.TrimSpace(out)).To(Equal(strconv.Itoa(len(faults()))), "faults that happened")
	shell(ctx, box, "systemctl stop lab-fault && rm -r "+faultDir+" "+faultUnit+" "+faultWants+" && systemctl daemon-reload")
}
