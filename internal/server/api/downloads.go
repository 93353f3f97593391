package api

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

const (
	// An agent that is refused because all slots are in use retries after busyDelay, plus a random
	// part of busySpread. One whose file is missing retries later, because an
	// administrator has to provide it.
	busyDelay, missingDelay = 5 * time.Second, time.Minute
	busySpread              = 25 * time.Second
)

// Files opens the files that hosts may download.
type Files interface {
	// Open opens the file with a SHA-256, in lower-case hex. It returns an error if no
	// file has it.
	Open(sha256 string) (*os.File, error)
}

// Downloads configures downloads of one kind of files.
type Downloads struct {
	// Files may be nil; then hosts can't download any.
	Files Files
	// Limit bounds concurrent downloads.
	Limit int
	// Stall is how long the transfer of 32 KiB may take.
	Stall time.Duration
}

// downloads bounds concurrent downloads: one for each host, and a number for all.
type downloads struct {
	Downloads

	// kind of the files, for logs.
	kind    string
	running prometheus.Gauge

	mu    sync.Mutex
	hosts map[types.NamespacedName]struct{}
}

func newDownloads(kind string, o Downloads, m *metrics) *downloads {
	return &downloads{Downloads: o, kind: kind, running: m.downloads.WithLabelValues(kind), hosts: map[types.NamespacedName]struct{}{}}
}

// begin reports whether the host may download. If so, end must be called.
func (d *downloads) begin(host types.NamespacedName) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, has := d.hosts[host]; has || len(d.hosts) >= d.Limit {
		return false
	}
	d.hosts[host] = struct{}{}
	d.running.Set(float64(len(d.hosts)))
	return true
}

func (d *downloads) end(host types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.hosts, host)
	d.running.Set(float64(len(d.hosts)))
}

// send sends the file with the digest, which the host's plan must name.
func (d *downloads) send(w http.ResponseWriter, r *http.Request, host types.NamespacedName, digest string) error {
	if !d.begin(host) {
		return problem.Busy(busyDelay + rand.N(busySpread)) //nolint:gosec // no secret
	}
	defer d.end(host)
	file, err := d.Files.Open(digest)
	if err != nil {
		// A condition of the object that pins the file shows this to an administrator.
		return problem.Busy(missingDelay + rand.N(missingDelay)) //nolint:gosec // no secret
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("reading the size of the file: %w", err)
	}
	ctrl.LoggerFrom(r.Context()).Info("Sending a file", "ElementalHost", klog.KRef(host.Namespace, host.Name),
		"kind", d.kind, "sha256", digest, "range", r.Header.Get("Range"))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", `"`+digest+`"`)
	http.ServeContent(newPacedWriter(w, d.Stall, info.Size()), r, "", time.Time{}, file)
	return nil
}
