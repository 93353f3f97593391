package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

// asManager makes this test's program the manager. A process has one manager only: metrics
// and names of controllers are those of the process.
const asManager = "TEST_AS_MANAGER"

func TestMain(m *testing.M) {
	if os.Getenv(asManager) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestThreat101_OneNamespace runs the manager with the roles of infrastructure-components-namespaced.yaml
// and watched-namespace.yaml: it does its work in the watched namespace, and may do nothing in
// others.
func TestThreat101_OneNamespace(t *testing.T) {
	env := envtest.Start(t)
	r := &rig{Fixture: controllertest.New(t, env)}
	const pod = "elemental-controller-manager-0"
	r.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: defaultNamespace}})
	r.Create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: pod},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "manager"}}},
	})
	config := r.install(env, filepath.Join("config", "namespaced"), map[string]string{"ELEMENTAL_WATCH_NAMESPACE": r.Namespace},
		filepath.Join("config", "namespaced", "watched_namespace.yaml"))
	log := r.startProcess(config, pod)

	t.Run("Work", func(t *testing.T) { r.testWork(t, pod) })
	t.Run("Users", func(t *testing.T) { r.testUsers(t, env) })
	t.Run("Permissions", func(t *testing.T) { r.testPermissions(t, env, config) })
	NewWithT(t).Expect(log.text()).NotTo(ContainSubstring("forbidden"), "the manager lacks a permission")
}

// processLog is the log of the manager's process.
type processLog struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *processLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func (l *processLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

// startProcess starts the manager as a process, as in its Pod.
func (r *rig) startProcess(config *rest.Config, pod string) *processLog {
	r.T.Helper()
	log := &processLog{}
	// A leader whose requests are slow on a busy machine stays the leader.
	cmd := exec.CommandContext(r.Ctx, os.Args[0], "--leader-elect", "--leader-elect-lease-duration=3m", "--leader-elect-renew-deadline=2m",
		"--namespace="+r.Namespace,
		"--diagnostics-address=127.0.0.1:0", "--health-addr=0", "--webhook-port=0",
		"--agent-api-address=127.0.0.1:0", "--agent-api-url=https://127.0.0.1", "--gateway-passthrough-address=127.0.0.1:0", "--gateway-proxy-address=127.0.0.1:0", "--cluster-domain=cluster.local")
	cmd.Env = append(os.Environ(), asManager+"=true", "KUBECONFIG="+r.kubeconfig(config), "POD_NAMESPACE="+defaultNamespace, "POD_NAME="+pod)
	cmd.Stdout, cmd.Stderr = log, log
	// The test's context ends before its clean-ups.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	r.Expect(cmd.Start()).To(Succeed())
	r.T.Cleanup(func() {
		_ = cmd.Wait()
		if r.T.Failed() {
			r.T.Logf("The manager's log:\n%s", log.text())
		}
	})
	r.url, r.gateway = "https://"+r.served(log, "agents"), r.served(log, "users of workload clusters")
	return log
}

// served waits until the process serves these callers, and returns the address.
func (r *rig) served(log *processLog, callers string) string {
	r.T.Helper()
	line := regexp.MustCompile(`"Serving ` + callers + `".* address="([^"]+)"`)
	var found []string
	r.Eventually(func() []string {
		found = line.FindStringSubmatch(log.text())
		return found
	}).WithTimeout(soon).ShouldNot(BeEmpty())
	return found[1]
}

// testWork does what needs permissions: leading, token Secret, enrolment, endpoint, claim,
// bootstrap data, address from a pool, Service of an endpoint's name, release.
func (r *rig) testWork(t *testing.T, pod string) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	a := r.enrol(ctx, g)
	defer a.api.Close()
	leader := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: pod}}
	g.Eventually(func() map[string]string {
		r.Refresh(leader)
		return leader.Labels
	}).WithTimeout(soon).Should(HaveKey(server.LeaderLabel))

	template := &infrav1.ElementalMachineTemplate{ObjectMeta: r.Meta("c")}
	template.Spec.Template.Spec = &infrav1.ElementalMachineSpec{}
	r.Create(template)
	r.Create(&controlplanev1.KubeadmControlPlane{ObjectMeta: r.Meta("c"), Spec: controlplanev1.KubeadmControlPlaneSpec{
		Version: "v1.36.3",
		MachineTemplate: controlplanev1.KubeadmControlPlaneMachineTemplate{Spec: controlplanev1.KubeadmControlPlaneMachineTemplateSpec{
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachineTemplate", Name: "c"},
		}},
	}})
	kubeadm := clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group, Kind: "KubeadmControlPlane", Name: "c"}
	_, infra := r.Cluster("c", func(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) { c.Spec.ControlPlaneRef = kubeadm })
	r.Cluster("pooled", func(c *clusterv1.Cluster, i *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneRef = kubeadm
		i.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{Type: infrav1.EndpointTypeVIP, VIP: &infrav1.EndpointVIP{
			AddressFromPool: &infrav1.IPPoolReference{APIGroup: ipamv1.GroupVersion.Group, Kind: "InClusterIPPool", Name: "pool"},
		}}
	})
	g.Eventually(func() string {
		r.Refresh(infra)
		return infra.Spec.ControlPlaneEndpoint.Host
	}).WithTimeout(soon).Should(Equal("10.1.1.1"))
	g.Eventually(func() bool { return r.Exists(&ipamv1.IPAddressClaim{ObjectMeta: r.Meta("pooled-endpoint")}) }).WithTimeout(soon).Should(BeTrue())

	r.testEndpointService(g)

	secret := &corev1.Secret{ObjectMeta: r.Meta("m"), Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": []byte("#cloud-config")}}
	secret.Labels = map[string]string{clusterv1.ClusterNameLabel: "c"}
	r.Create(secret)
	owner, machine := r.Machine("c", "m", controllertest.ControlPlane)
	op, err := a.operation(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(op.Type).To(Equal(protocol.OperationBootstrap))
	var data []byte
	g.Expect(a.persist(ctx, func() (err error) {
		data, _, err = a.api.Bootstrap(ctx, op.ID)
		return err
	})).To(Succeed())
	g.Expect(string(data)).To(Equal("#cloud-config"))
	g.Expect(a.report(ctx, op, protocol.StateSucceeded)).To(Succeed())
	g.Eventually(func() bool {
		r.Refresh(machine)
		return meta.IsStatusConditionTrue(machine.Status.Conditions, infrav1.ReadyCondition)
	}).WithTimeout(soon).Should(BeTrue())
	g.Eventually(func() int {
		list := &corev1.EventList{}
		g.Expect(r.Admin.List(ctx, list, ctrlclient.InNamespace(r.Namespace))).To(Succeed())
		return len(list.Items)
	}).WithTimeout(soon).ShouldNot(BeZero())

	r.Delete(owner)
	r.Delete(machine)
	g.Eventually(func() protocol.OperationType {
		op, err := a.operation(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		return op.Type
	}).WithTimeout(soon).Should(Equal(protocol.OperationReset))
}

// testEndpointService checks that the Service of an endpoint of type Tunnel is created,
// corrected and created again: the manager sees it, though it caches no foreign Services.
func (r *rig) testEndpointService(g *WithT) {
	r.Cluster("tunnelled", func(_ *clusterv1.Cluster, i *infrav1.ElementalCluster) {
		i.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeTunnel
	})
	service := &corev1.Service{ObjectMeta: r.Meta("tunnelled-endpoint")}
	leads := func() string {
		if !r.Exists(service) {
			return ""
		}
		return service.Spec.ExternalName
	}
	const gateway = "elemental-gateway." + defaultNamespace + ".svc.cluster.local"
	g.Eventually(leads).WithTimeout(soon).Should(Equal(gateway))
	controllertest.Change(r.Fixture, service, func(s *corev1.Service) { s.Spec.ExternalName = "elsewhere.example.com" })
	g.Eventually(leads).WithTimeout(soon).Should(Equal(gateway))
	deleted := service.UID
	r.Delete(service)
	g.Eventually(leads).WithTimeout(soon).Should(Equal(gateway))
	g.Expect(service.UID).NotTo(Equal(deleted))
}

// enrol enrols a host with the token of a registration, and returns its agent.
func (r *rig) enrol(ctx context.Context, g *WithT) *agent {
	registration := &infrav1.ElementalRegistration{ObjectMeta: r.Meta("shop")}
	r.Create(registration)
	g.Eventually(func() *infrav1.LocalReference {
		r.Refresh(registration)
		return registration.Status.TokenSecretRef
	}).WithTimeout(soon).ShouldNot(BeNil())
	secret := &corev1.Secret{ObjectMeta: r.Meta(registration.Status.TokenSecretRef.Name)}
	r.Refresh(secret)
	config, err := enrolment.DecodeAgentConfig(secret.Data["config.yaml"])
	g.Expect(err).NotTo(HaveOccurred())
	a, err := newAgent("box", r.url, registration.Status.Endpoint.CABundle)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(a.persist(ctx, func() error {
		_, err := a.api.Enrol(ctx, config.Token, protocol.EnrolRequest{
			Hello:       protocol.Hello{Protocol: protocol.Version, AgentVersion: "v0.1.0", BootID: a.name},
			Cleanliness: protocol.Cleanliness{Clean: true},
		})
		return err
	})).To(Succeed())
	g.Expect(a.start(ctx)).To(Succeed())
	return a
}

// testPermissions asks the API server as the manager.
func (r *rig) testPermissions(t *testing.T, env *envtest.Environment, config *rest.Config) {
	g := NewWithT(t)
	ctx := t.Context()
	manager, err := ctrlclient.New(config, ctrlclient.Options{Scheme: env.Scheme})
	g.Expect(err).NotTo(HaveOccurred())
	elsewhere := env.Namespace(t)
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "foreign"}}
	own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: "other"}}
	r.Create(foreign)
	r.Create(own)
	forbidden := MatchError(apierrors.IsForbidden, "IsForbidden")

	g.Expect(manager.Get(ctx, ctrlclient.ObjectKeyFromObject(foreign), &corev1.Secret{})).To(forbidden)
	g.Expect(manager.List(ctx, &corev1.SecretList{}, ctrlclient.InNamespace(elsewhere))).To(forbidden)
	g.Expect(manager.List(ctx, &corev1.SecretList{})).To(forbidden)
	g.Expect(manager.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "new"}})).To(forbidden)
	g.Expect(manager.Patch(ctx, foreign.DeepCopy(), ctrlclient.RawPatch("application/merge-patch+json", []byte(`{"data":{}}`)))).To(forbidden)
	// Of its own namespace it reads the CA only.
	g.Expect(manager.Get(ctx, ctrlclient.ObjectKey{Namespace: defaultNamespace, Name: authority.SecretName}, &corev1.Secret{})).To(Succeed())
	g.Expect(manager.Get(ctx, ctrlclient.ObjectKeyFromObject(own), &corev1.Secret{})).To(forbidden)
	g.Expect(manager.List(ctx, &corev1.SecretList{}, ctrlclient.InNamespace(defaultNamespace))).To(forbidden)

	role := &rbacv1.ClusterRole{}
	g.Expect(r.Admin.Get(ctx, ctrlclient.ObjectKey{Name: "elemental-manager-role"}, role)).To(Succeed())
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					name, subresource, _ := strings.Cut(resource, "/")
					ask := authorizationv1.ResourceAttributes{Group: group, Resource: name, Subresource: subresource, Verb: verb}
					g.Expect(may(ctx, g, manager, r.Namespace, ask)).To(BeTrue(), "in the watched namespace: %v", ask)
					g.Expect(may(ctx, g, manager, elsewhere, ask)).To(BeFalse(), "elsewhere: %v", ask)
					g.Expect(may(ctx, g, manager, "", ask)).To(BeFalse(), "in all namespaces: %v", ask)
				}
			}
		}
	}
}

// may reports whether the manager is permitted to do what ask says, in a namespace.
func may(ctx context.Context, g *WithT, manager ctrlclient.Client, namespace string, ask authorizationv1.ResourceAttributes) bool {
	ask.Namespace = namespace
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &ask}}
	g.Expect(manager.Create(ctx, review)).To(Succeed())
	return review.Status.Allowed
}
