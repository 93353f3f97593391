package server_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
)

// bundles is the API with bundles of Kubernetes, and hosts of a cluster.
type bundles struct {
	*WithT
	*harness
	folder, token string
	// digest is that of a bundle of size bytes, and other that of another one.
	digest, other string
}

func newBundles(t *testing.T, size int, change ...func(*server.Options)) *bundles {
	t.Helper()
	b := &bundles{WithT: NewWithT(t), folder: t.TempDir()}
	content := strings.Repeat("kubernetes", size/10)
	b.digest, b.other = digestOf(content), digestOf("other")
	b.Expect(os.WriteFile(filepath.Join(b.folder, "bundle"), []byte(content), 0o600)).To(Succeed())
	b.Expect(os.WriteFile(filepath.Join(b.folder, "other"), []byte("other"), 0o600)).To(Succeed())
	b.harness = start(t, append([]func(*server.Options){func(o *server.Options) {
		o.Bundles = served(t, o.Clock, b.folder, protocol.MaxBundleBytes)
	}}, change...)...)
	b.token = b.fleet()
	b.cluster("c")
	return b
}

func (b *bundles) of(digest string, sources ...string) infrav1.HostBundle {
	return infrav1.HostBundle{Version: "v1.36.3", SHA256: digest, SizeBytes: 1, Sources: sources}
}

// node returns an agent that can use bundles, whose host is a Node with a change of its spec.
func (b *bundles) node(machine string, change func(*infrav1.ElementalHost)) *agent {
	b.tb.Helper()
	a := b.member(b.token, machine, infrav1.RoleWorker)
	hello := enrolRequest().Hello
	hello.Capabilities = append(hello.Capabilities, protocol.CapabilityBundle, protocol.CapabilityNodeUpgrade)
	got := a.report(protocol.Report{Hello: &hello})
	b.Expect(got.status).To(Equal(http.StatusNoContent), got.body)
	b.cachedSoon(b.patch(a.name, change))
	return a
}

func (b *bundles) get(a *agent, digest string) answer {
	return a.call(http.MethodGet, protocol.PathBundle+"?sha256="+digest, nil)
}

func TestBundleIsServed(t *testing.T) {
	b := newBundles(t, 300_000)
	a := b.node("m", func(h *infrav1.ElementalHost) { h.Spec.Bundle = new(b.of(b.digest, "https://mirror/x", "manager")) })
	b.Expect(a.plan("").Desired.Bundle).To(HaveValue(Equal(protocol.Bundle{
		Version: "v1.36.3", SHA256: b.digest, SizeBytes: 1, Sources: []string{"https://mirror/x", "manager"},
	})))
	resp := a.fetchFile(t.Context(), protocol.PathBundle, b.digest)
	b.Expect([]any{resp.StatusCode, resp.ContentLength}).To(Equal([]any{http.StatusOK, int64(300_000)}))
	b.Expect(resp.Header.Get("ETag")).To(Equal(`"` + b.digest + `"`))
	b.Expect((&fetching{WithT: b.WithT, harness: b.harness}).body(resp)).To(Equal(b.digest))

	resp = a.fetchFile(t.Context(), protocol.PathBundle, b.digest, "Range", "bytes=299990-", "If-Range", `"`+b.digest+`"`)
	b.Expect(resp.StatusCode).To(Equal(http.StatusPartialContent))
	b.Expect(resp.Header.Get("Content-Range")).To(Equal("bytes 299990-299999/300000"))
}

// The bundle of an upgrade is served once the upgrade is the host's operation.
func TestBundleOfAnUpgradeIsServed(t *testing.T) {
	b := newBundles(t, 1000)
	a := b.node("m", func(h *infrav1.ElementalHost) {
		h.Spec.NodeUpgrade = &infrav1.HostNodeUpgrade{ID: "up-1", Role: infrav1.UpgradeWorker, Bundle: b.of(b.digest, "manager")}
	})
	b.Expect(a.plan("").Operation).To(HaveValue(And(HaveField("Type", protocol.OperationNodeUpgrade), HaveField("ID", "up-1"))))
	b.Expect(b.get(a, b.digest).status).To(Equal(http.StatusOK))
	// An upgrade that nobody requested is not recorded, its own is.
	b.Expect(a.reportOperation(protocol.OperationNodeUpgrade, "up-2", protocol.StateSucceeded).status).To(Equal(http.StatusConflict))
	b.Expect(a.reportOperation(protocol.OperationNodeUpgrade, "up-1", protocol.StateSucceeded).status).To(Equal(http.StatusNoContent))
	b.cachedSoon(b.host(a.name))
	b.Expect(b.get(a, b.digest).status).To(Equal(http.StatusNotFound), "the upgrade is over")
}

// A host gets only the bundle that its plan names, and only if the manager is among the
// sources. Every other answer is the same, whether the manager has the file or not.
func TestThreat64_BundlesOfOtherHosts(t *testing.T) {
	b := newBundles(t, 1000)
	a := b.node("m", func(h *infrav1.ElementalHost) { h.Spec.Bundle = new(b.of(b.digest, "manager")) })
	nothing := b.get(a, digestOf("nothing"))
	b.Expect(nothing.status).To(Equal(http.StatusNotFound))
	b.Expect(nothing.problem().Type).To(Equal(protocol.ProblemNoOperation))
	for name, digest := range map[string]string{
		"another bundle": b.other, "upper case": strings.ToUpper(b.digest), "none": "", "a path": "../bundle", "a name": "bundle",
	} {
		got := b.get(a, digest)
		b.Expect([]any{got.status, got.body}).To(Equal([]any{nothing.status, nothing.body}), name)
	}
	b.Expect(b.get(b.agent(), b.digest).problem().Type).To(Equal(protocol.ProblemUnknownHost))

	mirrored := b.node("m2", func(h *infrav1.ElementalHost) {
		h.Spec.Bundle = new(b.of(b.digest, "https://mirror/x", "file:/manager"))
	})
	b.Expect(b.get(mirrored, b.digest).status).To(Equal(http.StatusNotFound), "the manager is no source")

	for i, change := range []func(*infrav1.ElementalHost){
		func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending },
		func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected },
		func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "dead"} },
		func(h *infrav1.ElementalHost) { h.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned} },
		func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing },
	} {
		host := b.node(fmt.Sprintf("m%d", 3+i), func(h *infrav1.ElementalHost) { h.Spec.Bundle = new(b.of(b.digest, "manager")) })
		b.Expect(b.get(host, b.digest).status).To(Equal(http.StatusOK))
		b.cachedSoon(b.patch(host.name, change))
		b.Expect(b.get(host, b.digest).status).To(BeElementOf(http.StatusForbidden, http.StatusNotFound), "change %d", i)
	}
}

func TestBundleIsMissing(t *testing.T) {
	b := newBundles(t, 1000)
	a := b.node("m", func(h *infrav1.ElementalHost) { h.Spec.Bundle = new(b.of(digestOf("missing"), "manager")) })
	got := b.get(a, digestOf("missing"))
	b.Expect(got.status).To(Equal(http.StatusServiceUnavailable))
	after, err := strconv.Atoi(got.header.Get("Retry-After"))
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(after).To(BeNumerically(">=", 60))
}

// Bundles have slots of their own: hosts that fetch them keep no agent from its update.
func TestThreat14_BundlesAreBounded(t *testing.T) {
	b := newBundles(t, large, func(o *server.Options) { o.BundleDownloads = 1 })
	with := func(h *infrav1.ElementalHost) { h.Spec.Bundle = new(b.of(b.digest, "manager")) }
	first, second := b.node("m1", with), b.node("m2", with)
	resp := first.fetchFile(t.Context(), protocol.PathBundle, b.digest)
	b.Expect(resp.StatusCode).To(Equal(http.StatusOK))
	b.Expect(b.get(second, b.digest).status).To(Equal(http.StatusServiceUnavailable))
	b.Expect(b.metric("elemental_agent_api_downloads")).To(BeEquivalentTo(1))
	b.Expect((&fetching{WithT: b.WithT, harness: b.harness}).body(resp)).To(Equal(b.digest))
	b.Eventually(func() int {
		return second.fetchFile(t.Context(), protocol.PathBundle, b.digest, "Range", "bytes=0-9").StatusCode
	}, eventually, often).Should(Equal(http.StatusPartialContent))
}
