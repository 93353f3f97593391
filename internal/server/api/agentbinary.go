package api

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

const (
	// An agent that is refused because all slots are in use retries after busyDelay, plus a random
	// part of busySpread. One whose binary is missing retries later, because an
	// administrator has to provide it.
	busyDelay, missingDelay = 5 * time.Second, time.Minute
	busySpread              = 25 * time.Second
)

// AgentFiles opens agent binaries.
type AgentFiles interface {
	// Open opens the file with a SHA-256, in lower-case hex. It returns an error if no
	// file has it.
	Open(sha256 string) (*os.File, error)
}

// Downloads configures downloads of agent binaries.
type Downloads struct {
	// Files may be nil; then hosts are not updated.
	Files AgentFiles
	// Limit bounds concurrent downloads.
	Limit int
	// Stall is how long the transfer of 32 KiB may take.
	Stall time.Duration
}

// downloads bounds concurrent downloads: one for each host, and a number for all.
type downloads struct {
	Downloads

	mu    sync.Mutex
	hosts map[types.NamespacedName]struct{}
}

func newDownloads(o Downloads) *downloads {
	return &downloads{Downloads: o, hosts: map[types.NamespacedName]struct{}{}}
}

// begin reports whether the host may download. If so, end must be called.
func (d *downloads) begin(host types.NamespacedName) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, has := d.hosts[host]; has || len(d.hosts) >= d.Limit {
		return false
	}
	d.hosts[host] = struct{}{}
	return true
}

func (d *downloads) end(host types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.hosts, host)
}

// agentBinary sends the agent binary that the host's plan names. For any other digest the
// answer is the same, whether the file exists or not.
func (h *Handler) agentBinary(w http.ResponseWriter, r *http.Request, from caller) error {
	digest, err := parameter(r, "sha256")
	if err != nil {
		return err
	}
	allowed, err := h.mayDownload(r.Context(), from.host, digest)
	if err != nil {
		return err
	}
	if !allowed {
		return problem.NoOperation(http.StatusNotFound)
	}
	key := client.ObjectKeyFromObject(from.host)
	from.host = nil
	if !h.downloads.begin(key) {
		return problem.Busy(busyDelay + rand.N(busySpread)) //nolint:gosec // no secret
	}
	defer h.downloads.end(key)
	file, err := h.downloads.Files.Open(digest)
	if err != nil {
		// The registration's condition AgentBinariesReady shows this to an administrator.
		return problem.Busy(missingDelay + rand.N(missingDelay)) //nolint:gosec // no secret
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("reading the size of the agent's binary: %w", err)
	}
	ctrl.LoggerFrom(r.Context()).Info("Sending an agent", "ElementalHost", klog.KRef(key.Namespace, key.Name),
		"sha256", digest, "range", r.Header.Get("Range"))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", `"`+digest+`"`)
	http.ServeContent(newPacedWriter(w, h.downloads.Stall, info.Size()), r, "", time.Time{}, file)
	return nil
}

// mayDownload reports whether the host's plan names the agent binary with that digest.
func (h *Handler) mayDownload(ctx context.Context, host *infrav1.ElementalHost, digest string) (bool, error) {
	if h.downloads.Files == nil || host.Spec.Fence != nil {
		return false, nil
	}
	site, err := h.planInputs.Site(ctx, host)
	if err != nil {
		return false, err
	}
	// Only plans of approved hosts name an agent. It does not depend on the cluster.
	agent := plan.For(host, site, plan.Cluster{}).Desired.Agent
	return agent != nil && agent.SHA256 == digest, nil
}
