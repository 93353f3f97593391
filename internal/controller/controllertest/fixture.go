package controllertest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

// eventBuffer is larger than the number of Events in any test.
const eventBuffer = 1000

// Fixture is a namespace of the API server with a clock of its own.
type Fixture struct {
	*gomega.WithT

	T         *testing.T
	Ctx       context.Context // it ends with the test
	Namespace string
	// Client is for the reconciler under test. Admin is for everything else, and its writes
	// are not recorded.
	Client *Client
	Admin  client.Client
	Clock  *clocktesting.FakeClock
	// Recorder keeps the recorded Events.
	Recorder *events.FakeRecorder
}

// New returns a fixture for one test. Its client has the indexes of package index
// and those that register adds.
func New(t *testing.T, env *envtest.Environment, register ...func(context.Context, client.FieldIndexer) error) *Fixture {
	t.Helper()
	return &Fixture{
		WithT: gomega.NewWithT(t), T: t, Ctx: t.Context(),
		Namespace: env.Namespace(t),
		Client:    NewClient(t, env, append(register, index.Register)...),
		Admin:     env.Client(t),
		Clock:     clocktesting.NewFakeClock(time.Now().Truncate(time.Second)),
		Recorder:  events.NewFakeRecorder(eventBuffer),
	}
}

// Meta returns the metadata of an object in the fixture's namespace.
func (f *Fixture) Meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: f.Namespace, Name: name}
}

// Create creates an object with its status.
func (f *Fixture) Create(o client.Object) {
	f.T.Helper()
	complete := struct {
		Status map[string]any `json:"status,omitempty"`
	}{}
	text, err := json.Marshal(o)
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Expect(json.Unmarshal(text, &complete)).To(gomega.Succeed())
	f.Expect(f.Admin.Create(f.Ctx, o)).To(gomega.Succeed())
	if len(complete.Status) == 0 {
		return
	}
	status, err := json.Marshal(complete)
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Expect(f.Admin.Status().Patch(f.Ctx, o, client.RawPatch(types.MergePatchType, status))).To(gomega.Succeed())
}

// Refresh reads an object again.
func (f *Fixture) Refresh(o client.Object) {
	f.T.Helper()
	f.Expect(f.Admin.Get(f.Ctx, client.ObjectKeyFromObject(o), o)).To(gomega.Succeed())
}

// Change changes spec or metadata of an object as a user would.
func Change[T client.Object](f *Fixture, o T, change func(T)) {
	f.T.Helper()
	f.Refresh(o)
	before, ok := o.DeepCopyObject().(client.Object)
	f.Expect(ok).To(gomega.BeTrue())
	change(o)
	f.Expect(f.Admin.Patch(f.Ctx, o, client.MergeFrom(before))).To(gomega.Succeed())
}

// ChangeStatus changes the status of an object as its controller would.
func ChangeStatus[T client.Object](f *Fixture, o T, change func(T)) {
	f.T.Helper()
	f.Refresh(o)
	before, ok := o.DeepCopyObject().(client.Object)
	f.Expect(ok).To(gomega.BeTrue())
	change(o)
	f.Expect(f.Admin.Status().Patch(f.Ctx, o, client.MergeFrom(before))).To(gomega.Succeed())
}

// Delete deletes an object as a user would.
func (f *Fixture) Delete(o client.Object) {
	f.T.Helper()
	f.Expect(f.Admin.Delete(f.Ctx, o)).To(gomega.Succeed())
}

// Exists reports whether the object exists, and reads it.
func (f *Fixture) Exists(o client.Object) bool {
	f.T.Helper()
	err := f.Admin.Get(f.Ctx, client.ObjectKeyFromObject(o), o)
	f.Expect(client.IgnoreNotFound(err)).To(gomega.Succeed())
	return err == nil
}

// Host creates a host that is approved, connected and clean, with the changes applied.
func (f *Fixture) Host(name string, changes ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
	f.T.Helper()
	host := FreeHost(f.Namespace, name, f.Clock.Now())
	for _, change := range changes {
		change(host)
	}
	hoststatus.Update(host, metav1.NewTime(f.Clock.Now()))
	f.Create(host)
	return host
}

// FreeHost returns a host that is approved, connected and clean.
func FreeHost(namespace, name string, since time.Time) *infrav1.ElementalHost {
	return &infrav1.ElementalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       infrav1.ElementalHostSpec{HostID: name, Approval: infrav1.ApprovalApproved},
		Status: infrav1.ElementalHostStatus{
			Connection:  &infrav1.HostConnection{State: infrav1.ConnectionConnected, Since: metav1.NewTime(since)},
			Cleanliness: &infrav1.HostCleanliness{State: infrav1.CleanlinessClean},
			Addresses:   []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "10.1.1.1"}},
		},
	}
}

// Report writes facts of a host and the derived conditions in one write, as the agent API
// does.
func (f *Fixture) Report(host *infrav1.ElementalHost, change func(*infrav1.ElementalHostStatus)) {
	f.T.Helper()
	ChangeStatus(f, host, func(h *infrav1.ElementalHost) {
		change(&h.Status)
		hoststatus.Update(h, metav1.NewTime(f.Clock.Now()))
	})
}

// ReportOperation writes the state of the operation for the host's claim.
func (f *Fixture) ReportOperation(host *infrav1.ElementalHost, kind infrav1.OperationType, state infrav1.OperationState) {
	f.T.Helper()
	f.Report(host, func(status *infrav1.ElementalHostStatus) {
		SetOperation(status, infrav1.HostOperation{Type: kind, ID: host.Spec.Claim.ID, State: state})
	})
}

// SetOperation replaces the operation of that type.
func SetOperation(status *infrav1.ElementalHostStatus, op infrav1.HostOperation) {
	for i := range status.Operations {
		if status.Operations[i].Type == op.Type {
			status.Operations[i] = op
			return
		}
	}
	status.Operations = append(status.Operations, op)
}

// SetConnection records that the agent connected or disconnected now.
func (f *Fixture) SetConnection(host *infrav1.ElementalHost, state infrav1.ConnectionState) {
	f.T.Helper()
	f.Report(host, func(status *infrav1.ElementalHostStatus) {
		status.Connection = &infrav1.HostConnection{State: state, Since: metav1.NewTime(f.Clock.Now())}
	})
}

// Cluster creates a Cluster whose infrastructure is provisioned, and its
// ElementalCluster of the same name.
func (f *Fixture) Cluster(name string, changes ...func(*clusterv1.Cluster, *infrav1.ElementalCluster)) (*clusterv1.Cluster, *infrav1.ElementalCluster) {
	f.T.Helper()
	cluster := &clusterv1.Cluster{
		ObjectMeta: f.Meta(name),
		Spec: clusterv1.ClusterSpec{
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalCluster", Name: name},
		},
	}
	cluster.Status.Initialization.InfrastructureProvisioned = new(true)
	infraCluster := &infrav1.ElementalCluster{ObjectMeta: f.Meta(name)}
	infraCluster.Labels = map[string]string{clusterv1.ClusterNameLabel: name}
	for _, change := range changes {
		change(cluster, infraCluster)
	}
	f.Create(cluster)
	infraCluster.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: name, UID: cluster.UID,
	}}
	f.Create(infraCluster)
	return cluster, infraCluster
}

// Machine creates a Machine of the cluster that has bootstrap data, and its
// ElementalMachine of the same name.
func (f *Fixture) Machine(cluster, name string, changes ...func(*clusterv1.Machine, *infrav1.ElementalMachine)) (*clusterv1.Machine, *infrav1.ElementalMachine) {
	f.T.Helper()
	labels := func() map[string]string { return map[string]string{clusterv1.ClusterNameLabel: cluster} }
	owner := &clusterv1.Machine{ObjectMeta: f.Meta(name), Spec: clusterv1.MachineSpec{
		ClusterName:       cluster,
		Bootstrap:         clusterv1.Bootstrap{DataSecretName: new(name)},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachine", Name: name},
	}}
	owner.Labels = labels()
	machine := &infrav1.ElementalMachine{ObjectMeta: f.Meta(name)}
	machine.Labels = labels()
	for _, change := range changes {
		change(owner, machine)
	}
	f.Create(owner)
	machine.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: owner.UID,
	}}
	f.Create(machine)
	return owner, machine
}

// ControlPlane makes a Machine a control-plane Machine.
func ControlPlane(owner *clusterv1.Machine, machine *infrav1.ElementalMachine) {
	owner.Labels[clusterv1.MachineControlPlaneLabel] = ""
	machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
}

// Conditioned is an object with conditions.
type Conditioned interface {
	client.Object
	GetConditions() []metav1.Condition
}

// ExpectCondition reads an object and checks status and reason of a condition,
// which it returns.
func (f *Fixture) ExpectCondition(o Conditioned, conditionType string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	f.T.Helper()
	f.Refresh(o)
	c := meta.FindStatusCondition(o.GetConditions(), conditionType)
	f.Expect(c).NotTo(gomega.BeNil(), "condition %s", conditionType)
	f.Expect([]string{string(c.Status), c.Reason}).To(gomega.Equal([]string{string(status), reason}), "condition %s: %s", conditionType, c.Message)
	return c
}

// Events returns the Events recorded since the last call.
func (f *Fixture) Events() []string {
	var out []string
	for {
		select {
		case e := <-f.Recorder.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}
