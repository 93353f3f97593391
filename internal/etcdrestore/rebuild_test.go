package etcdrestore_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/etcdrestore"
)

// lose has the host set up its control plane again.
func lose(f *etcdrestore.Facts, h *infrav1.ElementalHost) {
	f.Restore.Spec.RebuildControlPlane = new(true)
	h.Status.Agent.Capabilities = append(h.Status.Agent.Capabilities, "ControlPlaneRebuild")
}

func TestRefusalOfRebuilds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(f *etcdrestore.Facts, h *infrav1.ElementalHost)
		want   string
	}{
		"nothing stands in the way": {func(*etcdrestore.Facts, *infrav1.ElementalHost) {}, ""},
		"at the destination":        {upload, ""},
		"an old agent": {func(_ *etcdrestore.Facts, h *infrav1.ElementalHost) {
			h.Status.Agent.Capabilities = []string{"EtcdRestore"}
		}, "its agent can't set up the control plane again: update the agent"},
		"a healthy API server, with permission": {func(f *etcdrestore.Facts, h *infrav1.ElementalHost) {
			serve(h)
			f.Restore.Spec.ReplaceHealthy = new(true)
		}, "it has not lost its control plane"},
		"another control plane": {func(f *etcdrestore.Facts, _ *infrav1.ElementalHost) {
			f.CantRebuild = errors.New("it is no KubeadmControlPlane")
		}, "Host h can't restore etcd now: its control plane can't be set up again: it is no KubeadmControlPlane"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := facts()
			lose(&f, f.Hosts[1])
			test.change(&f, f.Hosts[1])
			got := etcdrestore.Refusal(f)
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("got %q, not %q", got, test.want)
			}
		})
	}
}

// The plan says that the host gets the keys of the authorities.
func TestPlanOfRebuild(t *testing.T) {
	t.Parallel()
	f := facts()
	lose(&f, f.Hosts[1])
	const want = "Host h sets up its control plane again, which must be lost there: it gets the files of its bootstrap data once more, with the keys of the certificate authorities"
	if got := etcdrestore.Plan(f).Steps; !slices.Contains(got, want) {
		t.Errorf("got %q", got)
	}
}
