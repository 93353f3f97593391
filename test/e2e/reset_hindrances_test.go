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
	"github.com/capi-elemental/cluster-api-provider-elemental/test/lab/engine"
)

// hindrance is something that stands in the way of the reset of a worker.
type hindrance struct {
	name string
	// run removes the worker, and ends when its host is what it was before.
	run func(ctx context.Context, w workload, before stock)
}

func hindrances() []hindrance {
	return []hindrance{
		{"a mount is busy, and kubelet, runtime, containers and others hang", resetHung},
		{"a mount is busy, and the host can not reboot at first", resetWithoutReboot},
		{"the agent is killed and the power fails at each step", resetInterrupted},
		{"a file can't be removed", resetStuck},
	}
}

// holdMount has a process outside of all Pods work in a Pod's volume.
const holdMount = `set -e
volume=$(findmnt --noheadings --list --output TARGET | grep 'kubernetes.io~empty-dir/memory$')
cd "$volume"
setsid sh -c 'exec 3>held; while :; do sleep 1; done' >/dev/null 2>&1 </dev/null &
pid=$!
until [ -e held ]; do sleep 0.1; done
`

func resetHung(ctx context.Context, w workload, before stock) {
	GinkgoHelper()
	box := w.workerBox(ctx)
	// A process that is stopped answers nothing, and a signal but SIGKILL waits
	// for it to go on.
	shell(ctx, box, holdMount+`kill -STOP $pid $(pgrep -x kubelet) $(pgrep containerd-shim) $(pgrep -f "[/]disk/log")`)
	w.removeWorker(ctx)
	expectOffered(ctx, box)
	before.expectSame(ctx, box)
}

// resetWithoutReboot disables the agent, which then refuses to reboot: nobody
// would go on with the reset.
func resetWithoutReboot(ctx context.Context, w workload, before stock) {
	GinkgoHelper()
	box := w.workerBox(ctx)
	shell(ctx, box, holdMount+`systemctl disable elemental-agent`)
	w.removeWorker(ctx)
	expectDirty(ctx, box, "kubepods", "enable it")
	shell(ctx, box, "systemctl enable elemental-agent")
	expectOffered(ctx, box)
	before.expectSame(ctx, box)
}

func resetInterrupted(ctx context.Context, w workload, before stock) {
	GinkgoHelper()
	box := w.workerBox(ctx)
	putFaults(ctx, box)
	w.removeWorker(ctx)
	expectOffered(ctx, box)
	expectFaults(ctx, box)
	before.expectSame(ctx, box)
}

// resetStuck has the reset fail until a person removes what stands in its way.
func resetStuck(ctx context.Context, w workload, before stock) {
	GinkgoHelper()
	box := w.workerBox(ctx)
	const stuck = "/var/lib/kubelet/pki/stuck"
	shell(ctx, box, "touch "+stuck+" && chattr +i "+stuck)
	w.removeWorker(ctx)
	expectDirty(ctx, box, stuck)
	shell(ctx, box, "chattr -i "+stuck)
	expectOffered(ctx, box)
	before.expectSame(ctx, box)
}

// expectDirty waits until a host's condition names what is in the way, and sees
// that it is not offered.
func expectDirty(ctx context.Context, box *engine.Host, names ...string) {
	GinkgoHelper()
	var message string
	Eventually(func(g Gomega) {
		condition := meta.FindStatusCondition(hostOf(ctx, box).Status.Conditions, infrav1.CleanCondition)
		g.Expect(condition).NotTo(BeNil())
		message = condition.Message
		for _, name := range names {
			g.Expect(message).To(ContainSubstring(name))
		}
	}).WithTimeout(release).WithPolling(300 * time.Millisecond).Should(Succeed())
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

// faults are what fails, in turn: in which phase of the reset, how many seconds
// into it, and what.
func faults() []string {
	return []string{"stop 0 agent", "reboot 0 power", "clean 0 agent", "clean 0.1 power", "clean 0.05 agent"}
}

// faultScript fails each once, over all reboots, when the agent has recorded
// the phase. The last agent that was killed doesn't count as running.
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

// faultService is not stopped when the host goes down.
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

// expectFaults makes sure that all happened, and removes them.
func expectFaults(ctx context.Context, box *engine.Host) {
	GinkgoHelper()
	out, err := box.Exec(ctx, "cat", faultDir+"/done")
	Expect(err).NotTo(HaveOccurred())
	Expect(strings.TrimSpace(out)).To(Equal(strconv.Itoa(len(faults()))), "faults that happened")
	shell(ctx, box, "systemctl stop lab-fault && rm -r "+faultDir+" "+faultUnit+" "+faultWants+" && systemctl daemon-reload")
}
