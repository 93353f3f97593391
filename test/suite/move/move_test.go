//go:build embedded

package move

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/machine"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/pause"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

const soon = 3 * time.Minute

// side is a management cluster with the reconcilers of hosts and machines.
type side struct {
	*controllertest.Fixture

	kubeconfig string
}

func newSide(t *testing.T) *side {
	t.Helper()
	env := envtest.Start(t)
	s := &side{Fixture: controllertest.New(t, env), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	s.SetDefaultEventuallyTimeout(soon)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: env.Config.Host, CertificateAuthorityData: env.Config.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: env.Config.CertData, ClientKeyData: env.Config.KeyData}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	s.Expect(clientcmd.WriteToFile(*config, s.kubeconfig)).To(Succeed())
	// clusterctl labels the kinds that it installs, and moves only objects of those.
	kinds := &apiextensionsv1.CustomResourceDefinitionList{}
	s.Expect(s.Admin.List(s.Ctx, kinds)).To(Succeed())
	for i := range kinds.Items {
		controllertest.Change(s.Fixture, &kinds.Items[i], func(kind *apiextensionsv1.CustomResourceDefinition) {
			kind.Labels[clusterctlv1.ClusterctlLabel] = ""
		})
	}
	return s
}

// reconcile reconciles all machines and hosts once. Conflicts are repeated by the next round.
func (s *side) reconcile() {
	s.T.Helper()
	machines, hosts := &infrav1.ElementalMachineList{}, &infrav1.ElementalHostList{}
	s.Expect(s.Admin.List(s.Ctx, machines, client.InNamespace(s.Namespace))).To(Succeed())
	s.Expect(s.Admin.List(s.Ctx, hosts, client.InNamespace(s.Namespace))).To(Succeed())
	m := &machine.Reconciler{Client: s.Client, APIReader: s.Admin, Recorder: s.Recorder, Clock: s.Clock, Nominations: &placement.Nominations{}}
	h := &host.Reconciler{Client: s.Client, APIReader: s.Admin, Recorder: s.Recorder, Clock: s.Clock}
	check := func(_ ctrl.Result, err error) {
		s.T.Helper()
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			s.T.Errorf("reconciling: %v", err)
		}
	}
	for i := range machines.Items {
		check(m.Reconcile(s.Ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&machines.Items[i])}))
	}
	for i := range hosts.Items {
		check(h.Reconcile(s.Ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&hosts.Items[i])}))
	}
}

func (s *side) host(name string) *infrav1.ElementalHost {
	s.T.Helper()
	h := &infrav1.ElementalHost{ObjectMeta: s.Meta(name)}
	s.Refresh(h)
	return h
}

// plan is the plan that the agent API sends.
func (s *side) plan(name string) protocol.Plan {
	s.T.Helper()
	h := s.host(name)
	paused, err := pause.Host(s.Ctx, s.Client, h)
	s.Expect(err).NotTo(HaveOccurred())
	return plan.For(h, plan.Site{}, plan.Cluster{Paused: paused})
}

// member creates a host that is provisioned for a Machine of its name.
func (s *side) member(name string) (*infrav1.ElementalHost, *clusterv1.Machine, *infrav1.ElementalMachine) {
	s.T.Helper()
	h := s.Host(name, func(h *infrav1.ElementalHost) {
		h.Status.Agent = &infrav1.HostAgent{Version: "v1", Capabilities: []string{"Bootstrap", "Reset"}}
	})
	owner, m := s.Machine("c", name, func(o *clusterv1.Machine, m *infrav1.ElementalMachine) {
		o.Finalizers = []string{clusterv1.MachineFinalizer}
		m.Spec.HostName = name
		o.Status.NodeRef.Name = name
		// clusterctl moves what the Cluster owns.
		cluster := &clusterv1.Cluster{ObjectMeta: s.Meta("c")}
		s.Refresh(cluster)
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c", UID: cluster.UID}}
	})
	s.reconcile()
	s.Refresh(h)
	s.Expect(h.Spec.Claim).NotTo(BeNil(), name)
	return h, owner, m
}

// clusterctl builds clusterctl and returns its file.
func clusterctl(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	tools, err := toolset.Select("clusterctl")
	g.Expect(err).NotTo(HaveOccurred())
	cache, err := toolset.CacheDir()
	g.Expect(err).NotTo(HaveOccurred())
	folder, err := toolset.Builder{Modules: filepath.Join("..", "..", "tools"), Cache: cache, Progress: os.Stderr}.Folder(t.Context(), tools...)
	g.Expect(err).NotTo(HaveOccurred())
	return filepath.Join(folder, "clusterctl")
}

func TestMove(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	program := clusterctl(t)
	source, target := newSide(t), newSide(t)
	target.Namespace = source.Namespace
	home := t.TempDir()
	move := func(ctx context.Context) ([]byte, error) {
		command := exec.CommandContext(ctx, program, "move", "-v5", "--kubeconfig", source.kubeconfig, "--to-kubeconfig", target.kubeconfig, "--namespace", source.Namespace)
		command.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "CLUSTERCTL_DISABLE_VERSIONCHECK=true")
		return command.CombinedOutput()
	}

	source.Cluster("c", func(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) {
		c.Status.Initialization.ControlPlaneInitialized = new(true)
		c.Status.Conditions = []metav1.Condition{{
			Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Initialized", LastTransitionTime: metav1.Now(),
		}}
	})
	source.Host("free")
	source.member("claimed")
	bootstrapping, _, _ := source.member("bootstrapping")
	source.ReportOperation(bootstrapping, infrav1.OperationBootstrap, infrav1.OperationRunning)
	provisioned := func(name string) (*infrav1.ElementalHost, *clusterv1.Machine, *infrav1.ElementalMachine) {
		h, owner, m := source.member(name)
		source.ReportOperation(h, infrav1.OperationBootstrap, infrav1.OperationSucceeded)
		source.reconcile()
		return h, owner, m
	}
	deleted := func(name string, change func(*infrav1.ElementalMachine)) *infrav1.ElementalHost {
		h, owner, m := provisioned(name)
		controllertest.Change(source.Fixture, m, func(m *infrav1.ElementalMachine) {
			m.Finalizers = append(m.Finalizers, "example.com/other")
			if change != nil {
				change(m)
			}
		})
		source.Delete(owner)
		source.Delete(m)
		source.reconcile()
		source.Refresh(h)
		return h
	}
	deleted("releasing", nil)
	resetting := deleted("resetting", nil)
	source.ReportOperation(resetting, infrav1.OperationReset, infrav1.OperationRunning)
	deleted("held", func(m *infrav1.ElementalMachine) { m.Spec.Release.Policy = infrav1.ReleaseHold })
	offline, _, _ := provisioned("offline")
	source.SetConnection(offline, infrav1.ConnectionDisconnected)
	fenced, _, _ := provisioned("fenced")
	controllertest.Change(source.Fixture, fenced, func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "dead"} })
	source.reconcile()
	upgrading, _, _ := provisioned("upgrading")
	source.beginUpgrade(upgrading)
	names := []string{"free", "claimed", "bootstrapping", "releasing", "resetting", "held", "offline", "fenced", "upgrading"}
	plans, before := map[string]protocol.Plan{}, map[string]*infrav1.ElementalHost{}
	for _, name := range names {
		plans[name], before[name] = source.plan(name), source.host(name)
	}

	type result struct {
		out []byte
		err error
	}
	ended := make(chan result, 1)
	go func() {
		out, err := move(t.Context())
		ended <- result{out, err}
	}()
	blocked := func() []string {
		var out []string
		for _, name := range names {
			h, m := source.host(name), &infrav1.ElementalMachine{ObjectMeta: source.Meta(name)}
			_, host := h.Annotations[clusterctlv1.BlockMoveAnnotation]
			if source.Exists(m) {
				if _, machine := m.Annotations[clusterctlv1.BlockMoveAnnotation]; machine {
					host = true
				}
			}
			if host {
				out = append(out, name)
			}
		}
		return out
	}
	source.Eventually(func() bool {
		c := &clusterv1.Cluster{ObjectMeta: source.Meta("c")}
		source.Refresh(c)
		return pause.Cluster(c) || len(ended) > 0
	}).Should(BeTrue())
	source.reconcile()
	select {
	case got := <-ended:
		t.Fatalf("clusterctl has ended already: %v\n%s", got.err, got.out)
	default:
	}
	source.Expect(blocked()).To(ConsistOf("bootstrapping", "resetting"), "clusterctl waits for what runs, and for nothing else")
	source.Expect(source.plan("claimed").Operation).To(BeNil())
	source.Expect(source.plan("releasing").Operation).To(BeNil())
	source.ReportOperation(bootstrapping, infrav1.OperationBootstrap, infrav1.OperationSucceeded)
	source.ReportOperation(resetting, infrav1.OperationReset, infrav1.OperationSucceeded)
	source.reconcile()
	source.Expect(blocked()).To(BeEmpty())
	var got result
	source.Eventually(ended).Should(Receive(&got))
	source.Expect(got.err).NotTo(HaveOccurred(), string(got.out))
	source.Expect(source.Exists(&infrav1.ElementalHost{ObjectMeta: source.Meta("free")})).To(BeFalse())

	for _, name := range names {
		h := target.host(name)
		target.Expect(h.Spec).To(Equal(before[name].Spec), name)
		target.Report(h, func(status *infrav1.ElementalHostStatus) { *status = *before[name].Status.DeepCopy() })
		target.Expect(target.plan(name)).To(Equal(plans[name]), "the plan of host %s", name)
	}
	target.reconcile()
	var deleting []string
	machines := &clusterv1.MachineList{}
	target.Expect(target.Admin.List(target.Ctx, machines, client.InNamespace(target.Namespace))).To(Succeed())
	target.Expect(machines.Items).To(HaveLen(len(names)-1), "all but the free host have a Machine")
	for i := range machines.Items {
		_, marked := machines.Items[i].Annotations[clusterv1.DeleteMachineAnnotation]
		target.Expect(!machines.Items[i].DeletionTimestamp.IsZero()).To(Equal(marked), machines.Items[i].Name)
		if marked {
			deleting = append(deleting, machines.Items[i].Name)
		}
	}
	target.Expect(deleting).To(ConsistOf("releasing", "resetting", "held", "fenced"), "only what was being deleted is deleted again")
	for _, name := range names {
		target.Expect(target.host(name).Spec.Claim).To(Equal(before[name].Spec.Claim), name)
	}
	target.endUpgrade("upgrading", before["upgrading"].Spec.NodeUpgrade)
}
