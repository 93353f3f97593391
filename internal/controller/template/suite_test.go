package template_test

import (
	"fmt"
	"os"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/template"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

const gib = 1 << 30

var env *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

type fixture struct {
	*controllertest.Fixture

	reconciler *template.Reconciler
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{Fixture: controllertest.New(t, env)}
	selectors, err := selector.NewCompiler()
	f.Expect(err).NotTo(HaveOccurred())
	f.reconciler = &template.Reconciler{Client: f.Client, Clock: f.Clock, Selectors: selectors}
	return f
}

// template creates a template for workers.
func (f *fixture) template(name string, s *infrav1.HostSelector, changes ...func(*infrav1.ElementalMachineTemplate)) *infrav1.ElementalMachineTemplate {
	f.T.Helper()
	o := &infrav1.ElementalMachineTemplate{ObjectMeta: f.Meta(name)}
	o.Spec.Template.Spec = &infrav1.ElementalMachineSpec{HostSelector: s}
	for _, change := range changes {
		change(o)
	}
	f.Create(o)
	return o
}

// update reconciles the template after the interval has passed, and returns its status.
func (f *fixture) update(o *infrav1.ElementalMachineTemplate) infrav1.ElementalMachineTemplateStatus {
	f.T.Helper()
	f.Clock.Step(template.Interval)
	f.Expect(f.reconcile(o)).To(BeZero())
	return o.Status
}

func (f *fixture) reconcile(o *infrav1.ElementalMachineTemplate) ctrl.Result {
	f.T.Helper()
	result, err := f.reconciler.Reconcile(f.Ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	f.Expect(err).NotTo(HaveOccurred())
	f.Refresh(o)
	return result
}

func hardware(cores int32, memoryGiB int64) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		h.Status.Inventory = &infrav1.HostInventory{
			Architecture: "amd64", CPU: infrav1.HostCPU{Cores: cores}, MemoryBytes: memoryGiB * gib,
		}
	}
}

func arm(h *infrav1.ElementalHost) { h.Status.Inventory.Architecture = "arm64" }

func used(h *infrav1.ElementalHost) {
	h.Spec.Claim = &infrav1.HostClaim{ID: "x", MachineName: "x", ClusterName: "x", Phase: infrav1.ClaimBound}
}

func labelled(h *infrav1.ElementalHost) { h.Labels = map[string]string{"size": "big"} }

// ownedBy sets the owner reference to the Cluster, as Cluster API does.
func ownedBy(c *clusterv1.Cluster) func(*infrav1.ElementalMachineTemplate) {
	return func(o *infrav1.ElementalMachineTemplate) {
		o.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: c.Name, UID: c.UID,
		}}
	}
}

// summary returns a status as one line.
func summary(s infrav1.ElementalMachineTemplateStatus) string {
	matching, available := "?", "?"
	if s.Hosts.Matching != nil && s.Hosts.Available != nil {
		matching, available = fmt.Sprint(*s.Hosts.Matching), fmt.Sprint(*s.Hosts.Available)
	}
	return fmt.Sprintf("%s of %s free, cpu %s, memory %s, %s/%s",
		available, matching, s.Capacity.Cpu(), s.Capacity.Memory(), s.NodeInfo.OperatingSystem, s.NodeInfo.Architecture)
}
