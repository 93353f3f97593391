//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle/stage"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/image"
)

// maxRatio is the target for the time of an upgrade, divided by that of kubeadm by hand.
const maxRatio = 1.5

// upgradeFigures are those of an upgrade of the only node of a cluster.
type upgradeFigures struct {
	// steps are the times of the agent's steps.
	steps map[string]time.Duration
	// away is how long the API server did not answer.
	away time.Duration
	// received are the bytes that the host received.
	received int64
}

// stepTimes returns how long each step of the host's upgrade took, by the agent's log.
func stepTimes(ctx context.Context, box *engine.Host) map[string]time.Duration {
	GinkgoHelper()
	text, err := box.Exec(ctx, "journalctl", "--unit", "elemental-agent", "--output", "cat", "--no-pager")
	Expect(err).NotTo(HaveOccurred())
	_, text, found := strings.Cut(text, `msg="Running an operation" operation=NodeUpgrade`)
	Expect(found).To(BeTrue(), "the agent's log has no upgrade")
	logged := regexp.MustCompile(`(?m)^time=(\S+) .*msg="Operation (proceeds" id=\S+ step="?([a-z]+)|succeeded" operation=NodeUpgrade)`)
	began := map[string]time.Time{}
	var ended time.Time
	for _, match := range logged.FindAllStringSubmatch(text, -1) {
		at, err := time.Parse(time.RFC3339Nano, match[1])
		Expect(err).NotTo(HaveOccurred())
		if ended = at; match[3] != "" && began[match[3]].IsZero() {
			began[match[3]] = at
		}
	}
	times := map[string]time.Duration{}
	for _, step := range slices.Backward(upgradeSteps()) {
		if at := began[step]; !at.IsZero() {
			times[step], ended = ended.Sub(at), at
		}
	}
	return times
}

// upgradeSteps are the agent's steps in their order.
func upgradeSteps() []string {
	return []string{"stage", "check", "checkpoint", "kubeadm", "drain", "kubelet", "gate", "finish"}
}

// received returns how many bytes a host has received.
func received(ctx context.Context, box *engine.Host) int64 {
	GinkgoHelper()
	out, err := box.Exec(ctx, "cat", "/sys/class/net/eth0/statistics/rx_bytes")
	Expect(err).NotTo(HaveOccurred())
	n, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
	Expect(err).NotTo(HaveOccurred())
	return n
}

// manualTimes are those of an upgrade by hand, by the agent's step that does the same.
type manualTimes map[string]time.Duration

// upgradeByHand upgrades the only node of a cluster as kubeadm's documentation says, with the programs and images of
// a bundle.
func (w workload) upgradeByHand(ctx context.Context, box *engine.Host, b image.Bundle) manualTimes {
	GinkgoHelper()
	const folder = "/var/tmp/by-hand"
	unpacked := filepath.Join(GinkgoT().TempDir(), "by-hand")
	file, err := os.Open(b.File)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = file.Close() }()
	_, err = stage.Unpack(ctx, file, unpacked, stage.Options{
		SHA256: b.SHA256, Version: b.Version, Architecture: runtime.GOARCH, Limits: bundle.DefaultLimits(),
		Accept: func(bundle.Manifest) error { return nil }, Progress: func(stage.Progress) {},
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(box.Copy(ctx, unpacked, "/var/tmp")).To(Succeed())
	times := manualTimes{}
	timed := func(step, script string) {
		GinkgoHelper()
		began := time.Now()
		_, err := box.Exec(ctx, "sh", "-ec", "cd "+folder+"\n"+script)
		Expect(err).NotTo(HaveOccurred())
		times[step] = time.Since(began)
	}
	timed("stage", "for archive in images/*.tar; do ctr --namespace k8s.io images import $archive; done")
	timed("kubeadm", "bin/kubeadm upgrade apply "+b.Version+" --yes --skip-phases=addon --ignore-preflight-errors=CreateJob")
	timed("kubelet", `systemctl stop kubelet
for program in kubeadm kubectl kubelet; do cp bin/$program "$(command -v $program)"; done
systemctl start kubelet`)
	began := time.Now()
	Eventually(func(g Gomega) {
		nodes := &corev1.NodeList{}
		g.Expect(w.client(ctx).List(ctx, nodes)).To(Succeed())
		for _, node := range nodes.Items {
			g.Expect(node.Status.NodeInfo.KubeletVersion).To(Equal(b.Version))
			g.Expect(ready(&node)).To(BeTrue())
		}
	}).WithTimeout(upgradeTimeout).WithPolling(200 * time.Millisecond).Should(Succeed())
	times["gate"] = time.Since(began)
	return times
}

// report prints the figures, and writes them into the document that E2E_DOCUMENT names: a path in the repository.
func (f upgradeFigures) report(ctx context.Context, by manualTimes, b image.Bundle) {
	GinkgoHelper()
	machine, err := measure.ThisMachine()
	Expect(err).NotTo(HaveOccurred())
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	Expect(err).NotTo(HaveOccurred())
	section := table.Section{
		Scenario: "upgrade", Title: "An upgrade in place", Command: "make test-e2e E2E_LABELS=upgrade E2E_DOCUMENT=docs/benchmarks.md",
		Date: time.Now(), Commit: strings.TrimSpace(string(commit)),
		Machine: fmt.Sprintf("%d cores of %s, %.0f GiB, Linux %s, Go %s, Kubernetes %s", machine.Cores, machine.CPU,
			float64(machine.Memory)/(1<<30), machine.Kernel, machine.Go, b.Version),
	}
	var all, byHand time.Duration
	for _, step := range upgradeSteps() {
		row := table.Row{Figure: "Step `" + step + "`", Value: table.Duration(f.steps[step])}
		if bare, done := by[step]; done {
			row.Bare = table.Duration(bare)
			byHand += bare
		}
		all += f.steps[step]
		section.Rows = append(section.Rows, row)
	}
	ratio := all.Seconds() / byHand.Seconds()
	section.Rows = append(section.Rows,
		table.Row{
			Figure: "All steps", Value: table.Duration(all), Bare: table.Duration(byHand), Ratio: table.Ratio(all.Seconds(), byHand.Seconds()),
			Target: "1.5x", Missed: ratio > maxRatio,
		},
		table.Row{Figure: "API away", Value: table.Duration(f.away), Target: "2m0s", Missed: f.away > 2*time.Minute},
		table.Row{Figure: "Received by the host", Value: table.MiB(float64(f.received)), Bare: table.MiB(float64(b.Size)),
			Ratio: table.Ratio(float64(f.received), float64(b.Size))},
	)
	section.Notes = append(section.Notes, "The only node of a cluster is upgraded to another minor version on a lab host, which is a container with systemd: once "+
		"by the agent, and once by hand, which is *Bare*. By hand, nothing is checked before, kept or waited for but the Node, so these steps have no counterpart; "+
		"`gate` watches the Node for 30 seconds. The size of the bundle stands beside all that the host received meanwhile. "+
		"The API server was asked once a second.")
	fmt.Println(section)
	document := os.Getenv("E2E_DOCUMENT")
	if document == "" {
		return
	}
	document = filepath.Join("..", "..", "..", document)
	text, err := os.ReadFile(document)
	Expect(err).NotTo(HaveOccurred())
	changed, err := section.Replace(string(text))
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(document, []byte(changed), 0o644)).To(Succeed())
}
