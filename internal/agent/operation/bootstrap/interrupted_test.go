package bootstrap_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

var errPowerCut = errors.New("the power is cut")

// crashing loses power before a document with the suffix is written.
type crashing struct {
	state.Files

	before string
}

func (f crashing) Write(name string, data []byte) error {
	if f.before != "" && strings.HasSuffix(name, f.before) {
		return errPowerCut
	}
	return f.Files.Write(name, data)
}

// idle is a clean host, and everything else that a Runner needs. It records what is prepared.
type idle struct {
	platform.Platform
	bootstrap.Executor

	refusal  error
	prepared []protocol.File
}

func (*idle) Cleanliness(context.Context) (protocol.Cleanliness, error) {
	return protocol.Cleanliness{Clean: true}, nil
}

func (*idle) PreexistingPaths() ([]string, error) { return nil, nil }

func (*idle) Check(bootstrap.Job) ([]string, error) { return nil, nil }

func (*idle) Begun(bootstrap.Job) (bool, error) { return false, nil }

func (*idle) Execute(context.Context, bootstrap.Job, func(string)) ([]string, error) { return nil, nil }

func (h *idle) Bootstrap(context.Context, string) ([]byte, string, error) {
	return []byte("#cloud-config"), "cloud-config", h.refusal
}

func (h *idle) Prepare(_ context.Context, _ *protocol.Endpoint, files []protocol.File) error {
	h.prepared = files
	return nil
}

// Files of a plan are recorded with the bootstrap data. Those of an attempt that a crash ended before
// the data were recorded are neither used with a later plan nor kept if the operation is dropped.
func TestFilesOfAnInterruptedAttempt(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{"the plan has none": nil, "the manager refuses": errors.New("gone")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			documents, err := state.NewDir(t.TempDir())
			g.Expect(err).NotTo(HaveOccurred())
			h, desired := &idle{}, protocol.Desired{Files: []protocol.File{{Path: "/etc/kubernetes/manifests/vip.yaml"}}}
			op := state.Operation{Operation: protocol.Operation{Type: protocol.OperationBootstrap, ID: "a"}}
			run := func(files state.Files) error {
				_, err := (&bootstrap.Runner{
					Source: func() bootstrap.Source { return h }, Documents: files, Executor: h, Platform: h, Preparer: h,
					Desired: func() protocol.Desired { return desired }, Log: slog.New(slog.DiscardHandler),
				}).Run(t.Context(), op, func(string) {})
				return err
			}
			g.Expect(run(crashing{documents, "/data"})).To(MatchError(ContainSubstring(errPowerCut.Error())))
			desired, h.refusal = protocol.Desired{}, refusal
			err = run(documents)
			g.Expect(h.prepared).To(BeEmpty())
			g.Expect(errors.Is(err, operation.ErrNothingDone)).To(Equal(refusal != nil), "%v", err)
			_, err = documents.Read(op.Folder() + "/beside.json")
			g.Expect(err).To(MatchError(fs.ErrNotExist))
		})
	}
}
