package server

import (
	"context"
	"errors"
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
)

const (
	// DefaultAgentDownloads is how many agents are sent at once.
	DefaultAgentDownloads = 32
	// DefaultAgentStall is how long a piece of an agent may take to leave.
	DefaultAgentStall = 30 * time.Second

	// piece is what is written under one deadline: a second at 256 kbit/s.
	piece = 32 << 10
	// slowest, in bytes a second, bounds a download as a whole, so that nobody
	// keeps a place by reading now and then.
	slowest = 8 << 10
	// downloadSlack is what every download has besides.
	downloadSlack = time.Minute

	// Waiting times of agents that find no place, and of those whose agent is not
	// there, which an administrator has to see to.
	busyDelay, missingDelay = 5 * time.Second, time.Minute
	busySpread              = 25 * time.Second
)

// AgentFiles has the agents' binaries.
type AgentFiles interface {
	// Open opens the file with a SHA-256, in lower-case hex; an error if there is
	// none.
	Open(sha256 string) (*os.File, error)
}

// downloads bounds the agents that are sent at once: one for each host, and so
// many for all.
type downloads struct {
	files AgentFiles
	limit int
	stall time.Duration

	mu    sync.Mutex
	hosts map[types.NamespacedName]struct{}
}

func newDownloads(o Options) *downloads {
	return &downloads{
		files: o.Agents, limit: withDefault(o.AgentDownloads, DefaultAgentDownloads),
		stall: withDefault(o.AgentStall, DefaultAgentStall), hosts: map[types.NamespacedName]struct{}{},
	}
}

// begin takes a place for the host, if there is one.
func (d *downloads) begin(host types.NamespacedName) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, has := d.hosts[host]; has || len(d.hosts) >= d.limit {
		return false
	}
	d.hosts[host] = struct{}{}
	return true
}

// end gives the host's place back.
func (d *downloads) end(host types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.hosts, host)
}

// agentBinary sends the agent that the host's plan names. All who ask for
// another hear the same, whether it exists or not.
func (s *Server) agentBinary(w http.ResponseWriter, r *http.Request, who caller) error {
	digest, err := parameter(r, "sha256")
	if err != nil {
		return err
	}
	if may, err := s.mayFetch(r.Context(), who.host, digest); err != nil || !may {
		return orRefused(err)
	}
	key := client.ObjectKeyFromObject(who.host)
	who.host = nil
	if !s.downloads.begin(key) {
		return errBusy(busyDelay + rand.N(busySpread)) //nolint:gosec // no secret
	}
	defer s.downloads.end(key)
	file, err := s.downloads.files.Open(digest)
	if err != nil {
		// The registration's AgentBinariesReady tells an administrator.
		return errBusy(missingDelay + rand.N(missingDelay)) //nolint:gosec // no secret
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("looking at the agent's binary: %w", err)
	}
	ctrl.LoggerFrom(r.Context()).Info("Sending an agent", "ElementalHost", klog.KRef(key.Namespace, key.Name),
		"sha256", digest, "range", r.Header.Get("Range"))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", `"`+digest+`"`)
	http.ServeContent(newPacedWriter(w, s.downloads.stall, info.Size()), r, "", time.Time{}, file)
	return nil
}

// mayFetch tells whether the host is to run the agent with that digest.
func (s *Server) mayFetch(ctx context.Context, host *infrav1.ElementalHost, digest string) (bool, error) {
	if s.downloads.files == nil || host.Spec.Fence != nil {
		return false, nil
	}
	site, err := s.site(ctx, host)
	if err != nil {
		return false, err
	}
	// A plan names an agent to hosts only that are approved.
	agent := plan.For(host, site, plan.Cluster{}).Desired.Agent
	return agent != nil && agent.SHA256 == digest, nil
}

func orRefused(err error) error {
	if err != nil {
		return err
	}
	return errNoOperation(http.StatusNotFound)
}

// pacedWriter lets a slow reader take its time, but not one that has stopped.
type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	end     time.Time
}

func newPacedWriter(w http.ResponseWriter, stall time.Duration, size int64) *pacedWriter {
	return &pacedWriter{
		ResponseWriter: w, control: http.NewResponseController(w), stall: stall,
		end: time.Now().Add(downloadSlack + time.Duration(size/slowest)*time.Second),
	}
}

// errTooSlow ends a download; the agent resumes it.
var errTooSlow = errors.New("the download takes too long")

// Write implements io.Writer, piece by piece, each with a deadline of its own.
func (p *pacedWriter) Write(content []byte) (int, error) {
	written := 0
	for len(content) > 0 {
		now := time.Now()
		if now.After(p.end) {
			return written, errTooSlow
		}
		if err := p.control.SetWriteDeadline(now.Add(p.stall)); err != nil {
			return written, fmt.Errorf("setting the deadline: %w", err)
		}
		n, err := p.ResponseWriter.Write(content[:min(len(content), piece)])
		written += n
		if err != nil {
			return written, err
		}
		content = content[n:]
	}
	return written, nil
}

// Unwrap serves http.ResponseController.
func (p *pacedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }
