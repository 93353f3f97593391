package api

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
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
	// Limit bounds concurrent downloads, LimitEach those of one receiver. A LimitEach of zero
	// means one.
	Limit, LimitEach int
	// Stall is how long the transfer of 32 KiB may take.
	Stall time.Duration
}

// downloads bounds concurrent downloads: a number for each receiver, and one for all.
type downloads struct {
	Downloads

	// kind of the files, for logs.
	kind    string
	running prometheus.Gauge

	mu  sync.Mutex
	all int
	// of counts the downloads of each receiver.
	of map[receiver]int
}

// receiver is who downloads: a host, or the source of a caller without a key.
type receiver struct {
	host   types.NamespacedName
	source netip.Prefix
}

// String returns the host or the source.
func (r receiver) String() string {
	if r.host.Name != "" {
		return r.host.String()
	}
	return r.source.String()
}

func newDownloads(kind string, o Downloads, m *metrics) *downloads {
	o.LimitEach = max(1, o.LimitEach)
	return &downloads{Downloads: o, kind: kind, running: m.downloads.WithLabelValues(kind), of: map[receiver]int{}}
}

// begin reports whether the receiver may download. If so, end must be called.
func (d *downloads) begin(by receiver) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of[by] >= d.LimitEach || d.all >= d.Limit {
		return false
	}
	d.of[by]++
	d.all++
	d.running.Set(float64(d.all))
	return true
}

func (d *downloads) end(by receiver) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all--
	if d.of[by]--; d.of[by] == 0 {
		delete(d.of, by)
	}
	d.running.Set(float64(d.all))
}

// noSlot tells a host to come back when slots may be free. The time is random, so that hosts do not come back
// together.
func noSlot() *problem.Error {
	return problem.Busy(busyDelay + rand.N(busySpread)) //nolint:gosec // no secret
}

// send sends the file with the digest, which the receiver may have.
func (d *downloads) send(w http.ResponseWriter, r *http.Request, by receiver, digest string) error {
	if !d.begin(by) {
		return noSlot()
	}
	defer d.end(by)
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
	ctrl.LoggerFrom(r.Context()).Info("Sending a file", "receiver", by.String(), "kind", d.kind, "sha256", digest, "range", r.Header.Get("Range"))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", `"`+digest+`"`)
	http.ServeContent(newPacedWriter(w, d.Stall, info.Size()), r, "", time.Time{}, file)
	return nil
}
