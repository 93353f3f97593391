package api

import (
	"net/http"
	"time"

	"k8s.io/utils/clock"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/installscript"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/ratelimit"
)

const (
	// installsPerSecond and installsBurst limit the requests of all callers that install an
	// agent. A host makes two.
	installsPerSecond = 20
	installsBurst     = 400
	// maxInstalls bounds concurrent downloads of agents that are to be installed. One source
	// may have half of them, because many hosts may share it.
	maxInstalls = 16
	// installerPrefix begins the names of the files that may be installed.
	installerPrefix = "elemental-agent-linux-"
)

// Installer has the agents that callers without a key may install.
type Installer interface {
	Files
	// Named returns the SHA-256 of the file with that name, in lower-case hex.
	Named(name string) (sha256 string, found bool)
}

// installs serve the agent to callers that have no key yet. They are bounded apart from what
// hosts download, so that nobody without a key delays updates of hosts.
type installs struct {
	*downloads

	files Installer
	rate  *ratelimit.Shared
}

func newInstalls(files Installer, stall time.Duration, c clock.PassiveClock, m *metrics) *installs {
	return &installs{
		downloads: newDownloads("install", Downloads{Files: files, Limit: maxInstalls, LimitEach: maxInstalls / 2, Stall: stall}, m),
		files:     files, rate: ratelimit.NewShared(c, installsPerSecond, installsBurst),
	}
}

// architectures returns those that agents are built for, as Go names them.
func architectures() []string { return []string{"amd64", "arm64"} }

// named returns the SHA-256 of the agent for an architecture.
func (i *installs) named(architecture string) (digest string, found bool) {
	if i.files == nil {
		return "", false
	}
	return i.files.Named(installerPrefix + architecture)
}

// allow returns a problem if the caller has to come back later.
func (i *installs) allow(r *http.Request) error {
	if !i.rate.Allow(ratelimit.SourceOf(r.RemoteAddr)) {
		return problem.TooManyRequests(busyDelay)
	}
	return nil
}

// install sends the script that installs the agent.
func (h *Handler) install(w http.ResponseWriter, r *http.Request, _ caller) error {
	if err := h.installs.allow(r); err != nil {
		return err
	}
	agents := map[string]string{}
	for _, architecture := range architectures() {
		if digest, found := h.installs.named(architecture); found {
			agents[architecture] = digest
		}
	}
	if len(agents) == 0 {
		return problem.Busy(missingDelay)
	}
	script, err := installscript.Render(agents)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/x-shellscript; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	// An error here means that the caller has disconnected.
	_, _ = w.Write(script)
	return nil
}

// installAgent sends the agent of an architecture. Files with other names are not sent.
func (h *Handler) installAgent(w http.ResponseWriter, r *http.Request, _ caller) error {
	if err := h.installs.allow(r); err != nil {
		return err
	}
	for _, architecture := range architectures() {
		if r.URL.Query().Get("arch") != architecture {
			continue
		}
		digest, found := h.installs.named(architecture)
		if !found {
			return problem.Busy(missingDelay)
		}
		return h.installs.send(w, r, receiver{source: ratelimit.SourceOf(r.RemoteAddr)}, digest)
	}
	return problem.BadRequest("arch must be amd64 or arm64")
}
