package update_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/download"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/update"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const forged = "program v1.1.0 is not what the administrator pinned"

// refuses expects that an update to a release is refused: the program stays, no other
// file remains, and only the listed programs were executed.
func (h *host) refuses(u *update.Updater, pinned *protocol.AgentRelease, message string, ran ...string) time.Duration {
	h.t.Helper()
	again, err := u.Ensure(h.t.Context(), pinned, func() {})
	if err != nil {
		h.t.Fatal(err)
	}
	report := u.Report()
	if report == nil || report.State != protocol.StateFailed || report.Version != pinned.Version || !strings.Contains(report.Message, message) {
		h.t.Errorf("reports %+v", report)
	}
	if got := h.disk.content(program); got != present {
		h.t.Errorf("runs %q", got)
	}
	if strings.Join(h.ran, ",") != strings.Join(ran, ",") {
		h.t.Errorf("executed %q", h.ran)
	}
	if left := h.disk.content(program+".next") + h.disk.content(program+update.PreviousSuffix); left != "" && len(ran) == 0 {
		h.t.Errorf("left %q", left)
	}
	return again
}

func TestThreat26_WrongDigest(t *testing.T) {
	t.Parallel()
	h := newHost(t, forged)
	u := h.mustUpdater()
	again := h.refuses(u, releaseOf(good), "SHA-256")
	if again != time.Hour || h.disk.content("/state/update/binary") != "" {
		t.Errorf("again after %s, kept %q", again, h.disk.content("/state/update/binary"))
	}
	h.refuses(u, releaseOf(good), "SHA-256")
	if len(h.asked) != 1 {
		t.Errorf("asked %d times", len(h.asked))
	}
	// The update continues when the manager serves the right binary.
	h.serve = whole(good)
	if report, err := h.service(releaseOf(good)); err != nil || report.State != protocol.StateSucceeded {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestThreat26_DigestThatIsNone(t *testing.T) {
	t.Parallel()
	h := newHost(t, good)
	h.refuses(h.mustUpdater(), &protocol.AgentRelease{Version: "v1.1.0", SHA256: "../../etc/passwd"}, "no SHA-256")
	if len(h.asked) != 0 {
		t.Errorf("asked %d times", len(h.asked))
	}
}

func TestThreat26_OlderVersion(t *testing.T) {
	t.Parallel()
	h := newHost(t, older)
	u := h.mustUpdater()
	if again := h.refuses(u, releaseOf(older), "older"); again != 0 {
		t.Errorf("again after %s", again)
	}
	h.clock.now = h.clock.now.Add(1000 * time.Hour)
	h.refuses(u, releaseOf(older), "older")
	if len(h.asked) != 0 {
		t.Errorf("asked %d times", len(h.asked))
	}
}

// A pinned digest of an old binary does not pass for a new version.
func TestThreat26_OlderBinaryUnderANewVersion(t *testing.T) {
	t.Parallel()
	h := newHost(t, older)
	h.refuses(h.mustUpdater(), &protocol.AgentRelease{Version: "v1.1.0", SHA256: sum(older)}, "says that it is v0.9.0", older)
	if _, err := h.service(&protocol.AgentRelease{Version: "v1.1.0", SHA256: sum(older)}); err != nil || len(h.ran) != 1 {
		t.Errorf("executed %q, %v", h.ran, err)
	}
}

func TestThreat26_TruncatedDownload(t *testing.T) {
	t.Parallel()
	h := newHost(t, good)
	u := h.mustUpdater()
	// The connection ends early and the announced size is too small.
	h.serve = func(_ string, offset int64, save func(from, size int64, body io.Reader) error) error {
		return save(offset, -1, strings.NewReader(good[offset:20]))
	}
	h.refuses(u, releaseOf(good), "SHA-256")
}

func TestThreat26_OversizedDownload(t *testing.T) {
	t.Parallel()
	h := newHost(t, good)
	h.serve = func(_ string, _ int64, save func(from, size int64, body io.Reader) error) error {
		return save(0, -1, io.MultiReader(strings.NewReader(good), failing{download.ErrTooBig}))
	}
	h.refuses(h.mustUpdater(), releaseOf(good), "more than")
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// A partial download of an earlier attempt may have any content. The whole file must
// match the digest before it is executed.
func TestThreat26_NothingRunsBeforeItIsVerified(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]string{
		"a forged beginning":  forged[:20],
		"more than there is":  good + forged,
		"a forged whole":      strings.Replace(good, "connects", "attacks!", 1),
		"what was never sent": strings.Repeat("\x00", 30),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, good)
			h.disk.put("/state/update/binary", left)
			began := h.clock.now
			report, err := h.service(releaseOf(good))
			if err != nil || report.State != protocol.StateSucceeded || h.clock.now != began {
				t.Errorf("%+v after %s, %v", report, h.clock.now.Sub(began), err)
			}
			if len(h.ran) != 1 || h.ran[0] != good {
				t.Errorf("executed %q", h.ran)
			}
		})
	}
	h := newHost(t, forged)
	h.disk.put("/state/update/binary", forged[:20])
	h.refuses(h.mustUpdater(), releaseOf(good), "nothing of it was executed")
}
