//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

// restoreSteps are the steps of a restore on its host, in order.
func restoreSteps() []string {
	return []string{"check", "prepare", "halt", "swap", "start", "gate", "finish"}
}

var _ = Describe("A restore of etcd whose host loses power", Ordered, Label("etcd-cuts"), func() {
	w := workload{lab.Cluster{Name: "restart", ControlPlanes: 1}}

	It("goes on after each step", func(ctx context.Context) {
		step("restart: 1+0 running", func() {
			w.create(ctx)
			w.expectRunning(ctx, 1)
		})
		nodes := w.nodes(ctx)
		w.remember(ctx, "before")
		host := w.controlPlaneHost(ctx)
		snapshot := w.takeSnapshots(ctx)

		// A power cut that comes too late is one in a later step, and the next restore loses power again.
		missing := restoreSteps()
		for attempt := 1; len(missing) > 0; attempt++ {
			Expect(attempt).To(BeNumerically("<=", 2*len(restoreSteps())), "no power cut in the steps %v", missing)
			lost := fmt.Sprintf("lost-%d", attempt)
			w.remember(ctx, lost)
			step(fmt.Sprintf("restart: restore %d, with a power cut", attempt), func() {
				at := w.restoreWithCut(ctx, lost, &host, snapshot.ID, missing[0])
				missing = slices.DeleteFunc(missing, func(s string) bool { return s == at })
			})
			w.expectRestored(ctx, nodes, lost)
		}
		step("restart: cluster deleted, hosts available", func() {
			w.delete(ctx)
			expectAllAvailable(ctx)
		})
	}, SpecTimeout(100*time.Minute))
})

// restoreWithCut restores the cluster's etcd on a host that loses power in a step, or soon after it. It
// returns the step in which the host lost power.
func (w workload) restoreWithCut(ctx context.Context, name string, host *infrav1.ElementalHost, snapshot, wanted string) string {
	GinkgoHelper()
	planned := w.planRestore(ctx, name, snapshotOn(host.Name, snapshot), true)
	cut := make(chan string, 1)
	box := boxOf(host)
	go func() {
		defer GinkgoRecover()
		cut <- cutPowerOfRestore(ctx, box, wanted)
	}()
	w.confirmRestore(ctx, planned)
	var at string
	Expect(cut).To(Receive(&at), "the host has lost power")
	return at
}

// stopAtRestoreStep waits until the host's restore is at a step or a later one, stops the agent, and
// prints the step. Until the first step is done, and after the last one, only the list of operations has
// the restore. Some steps last some milliseconds, so the agent gets next to no CPU from the step before on.
// The control plane has to be well for 30 seconds in the step gate, which would last for minutes without
// CPU: the agent keeps it for most of that time.
const stopAtRestoreStep = `
wanted=$1
shift
cd /var/lib/elemental/agent
agent=$(systemctl show --property MainPID --value elemental-agent)
exec {never}<> <(:)
declare -A order=([none]=0)
for step in "$@"; do order[$step]=${#order[@]}; done
order[rollback]=${#order[@]}
order[done]=${#order[@]}
first=$1
step=none
isSlow=
while ((order[$step] < order[$wanted])); do
	mapfile -d '' -t operations <operations.json
	if [[ ${operations[0]##*\"type\"} == *EtcdRestore*Running* ]]; then
		step=$first
	elif [[ $step != none ]]; then
		step=done
	fi
	for record in operations/etcdrestore-*/etcdrestore.json; do
		[[ ! -e $record ]] || { read -r && read -r _ step; } <"$record"
	done
	step=${step//[\",]/}
	if [[ -z $isSlow && $step != none ]] && ((order[$step] == order[$wanted] - 1)); then
		[[ $step != gate ]] || read -rt 25 -u "$never"
		systemctl set-property --runtime elemental-agent CPUQuota=0.2% CPUQuotaPeriodSec=1s
		isSlow=true
	fi
done
kill -STOP "$agent"
echo "$step"
`

// cutPowerOfRestore cuts the host's power in a step of its restore or soon after it, starts the host again,
// and returns the step.
func cutPowerOfRestore(ctx context.Context, box *engine.Host, wanted string) string {
	GinkgoHelper()
	args := append([]string{"bash", "-c", stopAtRestoreStep, "bash", wanted}, restoreSteps()...)
	found, err := box.Exec(ctx, args...)
	Expect(err).NotTo(HaveOccurred(), "host %s was to lose power at step %s", box.Name, wanted)
	Expect(box.Kill(ctx)).To(Succeed())
	found = strings.TrimSpace(found)
	fmt.Printf("%s  host %s lost power at step %s\n", time.Now().Format(time.TimeOnly), box.Name, found)
	Expect(box.Start(ctx)).To(Succeed())
	Expect(box.WaitBooted(ctx)).To(Succeed())
	return found
}
