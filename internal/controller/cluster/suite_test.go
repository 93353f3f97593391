package cluster_test

import (
	"errors"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/tunnel"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

const (
	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse
)

var env *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

type fixture struct {
	*controllertest.Fixture

	reconciler *cluster.Reconciler
	contacts   *contacts
	tunnels    tunnel.Settings
	// cluster and infra are the objects under test.
	cluster *clusterv1.Cluster
	infra   *infrav1.ElementalCluster
}

// newFixture creates a Cluster whose infrastructure is not yet provisioned and whose
// endpoint is blank. Changes modify that.
func newFixture(t *testing.T, changes ...func(*clusterv1.Cluster, *infrav1.ElementalCluster)) *fixture {
	t.Helper()
	f := &fixture{Fixture: controllertest.New(t, env), tunnels: tunnelSettings()}
	f.contacts = &contacts{clock: f.Clock, answers: map[string]failover.Answer{}, askedAt: map[string]time.Time{}}
	f.reconciler = f.newReconciler()
	unprovisioned := func(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) {
		c.Status.Initialization.InfrastructureProvisioned = nil
	}
	f.cluster, f.infra = f.Cluster("c", append([]func(*clusterv1.Cluster, *infrav1.ElementalCluster){unprovisioned}, changes...)...)
	return f
}

// newReconciler returns a reconciler with empty caches, as after a crash.
func (f *fixture) newReconciler() *cluster.Reconciler {
	return &cluster.Reconciler{Client: f.Client, APIReader: f.Admin, Recorder: f.Recorder, Clock: f.Clock, Contacts: f.contacts, Tunnels: f.tunnels}
}

// contacts are the contacts of the agent API. Hosts answer at once and completely, except
// those with another answer in answers.
type contacts struct {
	clock   clock.PassiveClock
	answers map[string]failover.Answer
	// askedAt are the times of the last questions, by host.
	askedAt map[string]time.Time
}

func (c *contacts) Ask(host types.NamespacedName) failover.Contact {
	answer, other := c.answers[host.Name]
	if !other {
		answer = failover.Answer{Request: true, Report: true}
	}
	at, asked := c.askedAt[host.Name]
	if !asked || answer.Request && !c.clock.Now().Before(at.Add(failover.AskInterval)) {
		at = c.clock.Now()
		c.askedAt[host.Name] = at
	}
	return failover.Contact{AskedAt: at, Answer: answer}
}

// kubeadm sets the reference to a KubeadmControlPlane.
func kubeadm(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) {
	c.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: controlplanev1.GroupVersion.Group, Kind: "KubeadmControlPlane", Name: "c",
	}
}

// controlPlane creates the control plane that kubeadm refers to, and its machine template.
func (f *fixture) controlPlane(selector *infrav1.HostSelector) *infrav1.ElementalMachineTemplate {
	f.T.Helper()
	template := &infrav1.ElementalMachineTemplate{ObjectMeta: f.Meta("c")}
	template.Spec.Template.Spec = &infrav1.ElementalMachineSpec{HostSelector: selector}
	f.Expect(f.Admin.Create(f.Ctx, template)).To(Succeed())
	kcp := &controlplanev1.KubeadmControlPlane{ObjectMeta: f.Meta("c"), Spec: controlplanev1.KubeadmControlPlaneSpec{
		Version: "v1.36.3",
		MachineTemplate: controlplanev1.KubeadmControlPlaneMachineTemplate{Spec: controlplanev1.KubeadmControlPlaneMachineTemplateSpec{
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachineTemplate", Name: "c",
			},
		}},
		KubeadmConfigSpec: bootstrapv1.KubeadmConfigSpec{},
	}}
	f.Expect(f.Admin.Create(f.Ctx, kcp)).To(Succeed())
	return template
}

// reconcile reconciles the cluster once and refreshes its objects.
func (f *fixture) reconcile() ctrl.Result {
	f.T.Helper()
	result, err := f.reconciler.Reconcile(f.Ctx, f.request())
	f.Expect(err).NotTo(HaveOccurred())
	f.Exists(f.infra)
	f.Exists(f.cluster)
	return result
}

func (f *fixture) request() ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(f.infra)}
}

// reconcileUntilStable reconciles with a new reconciler each time, until a reconcile writes
// nothing.
func (f *fixture) reconcileUntilStable() {
	f.T.Helper()
	const rounds = 20
	for range rounds {
		written := len(f.Client.Writes())
		_, err := f.newReconciler().Reconcile(f.Ctx, f.request())
		if err != nil && !errors.Is(err, controllertest.ErrInjected) && !apierrors.IsConflict(err) {
			f.T.Fatalf("reconciling: %v", err)
		}
		if err == nil && len(f.Client.Writes()) == written {
			f.Exists(f.infra)
			f.Exists(f.cluster)
			return
		}
	}
	f.T.Fatalf("still writing after %d rounds: %v", rounds, f.Client.Writes())
}

// host creates a free host with that address.
func (f *fixture) host(name, address string, changes ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
	f.T.Helper()
	return f.Host(name, append(changes, func(h *infrav1.ElementalHost) {
		h.Status.Addresses = nil
		if address != "" {
			h.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: address}}
		}
	})...)
}

// copyEndpoint copies the endpoint to the Cluster once, as Cluster API does.
func (f *fixture) copyEndpoint() {
	f.T.Helper()
	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) {
		if !c.Spec.ControlPlaneEndpoint.IsValid() {
			e := f.infra.Spec.ControlPlaneEndpoint
			c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: e.Host, Port: e.Port}
		}
	})
}

// claimOf describes a host's claim.
func (f *fixture) claimOf(h *infrav1.ElementalHost) string {
	f.T.Helper()
	f.Refresh(h)
	if h.Spec.Claim == nil {
		return "free"
	}
	return string(h.Spec.Claim.Phase) + " " + h.Spec.Claim.ClusterName
}

func (f *fixture) endpoint() infrav1.ControlPlaneEndpoint { return f.infra.Spec.ControlPlaneEndpoint }
