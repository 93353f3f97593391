package reset_test

import (
	"context"
	"log/slog"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/reset"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// host is a host whose kernel has the state of a node until it reboots. A request for that is
// followed by the end of the agent.
type host struct {
	platform.Platform

	cleanliness protocol.Cleanliness
	reboots     int
	endAgent    context.CancelFunc
}

func (h *host) Cleanliness(context.Context) (protocol.Cleanliness, error) { return h.cleanliness, nil }

func (h *host) Stop(context.Context) error { return nil }

func (h *host) Clean(context.Context, []string) error { return nil }

func (h *host) Reboot(ctx context.Context) error {
	h.reboots++
	h.endAgent()
	return ctx.Err()
}

func (h *host) Executed() ([]string, error) { return nil, nil }

func (h *host) Undo(context.Context, string) error { return nil }

// An agent that is started again in the boot that had to end does not take the reboot for done:
// it says so, and requests the reboot again.
func TestRebootThatDoesNotHappen(t *testing.T) {
	g := NewWithT(t)
	files, err := state.NewDir(t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	h := &host{cleanliness: protocol.Cleanliness{Leftovers: []string{"cgroup kubepods"}}}
	run := func(bootID string) (protocol.OperationState, string, error) {
		var ctx context.Context
		ctx, h.endAgent = context.WithCancel(t.Context())
		defer h.endAgent()
		runner := &reset.Runner{Documents: files, Platform: h, Bootstraps: h, BootID: bootID, Log: slog.New(slog.DiscardHandler)}
		result, err := runner.Run(ctx, state.Operation{Operation: protocol.Operation{Type: protocol.OperationReset, ID: "b"}}, func(string) {})
		return result.State, result.Message, err
	}
	for range 2 {
		for range 2 {
			_, _, err := run("boot-1")
			g.Expect(err).To(MatchError(context.Canceled))
		}
		failed, message, err := run("boot-1")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(failed).To(Equal(protocol.StateFailed))
		g.Expect(message).To(ContainSubstring("cleaned without a reboot: the agent was started again 2 times"))
	}
	g.Expect(h.reboots).To(Equal(4))
	_, _, err = run("boot-1")
	g.Expect(err).To(MatchError(context.Canceled))
	h.cleanliness = protocol.Cleanliness{Clean: true}
	done, message, err := run("boot-2")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(done).To(Equal(protocol.StateSucceeded))
	g.Expect(message).To(BeEmpty())
}
