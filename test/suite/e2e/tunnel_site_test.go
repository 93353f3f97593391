//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

const (
	// gatewayNodePort leads to the gateway's passthrough from this machine, which is neither in
	// the management cluster nor in the site.
	gatewayNodePort = 30643
	// clusterDomain ends the names that only the management cluster resolves.
	clusterDomain = ".svc.cluster.local"
)

// remoteSite is a site whose hosts are enrolled.
type remoteSite struct {
	*lab.Site
}

// startSite starts a site and enrols its hosts. They are removed after the specs.
func startSite(ctx context.Context) *remoteSite {
	GinkgoHelper()
	made, err := hosts.Site(siteSubnet, siteHosts)
	Expect(err).NotTo(HaveOccurred())
	s := &remoteSite{made}
	DeferCleanup(s.remove)
	step("tunnel: site up", func() { Expect(s.Up(ctx)).To(Succeed()) })
	step("tunnel: site enrolled", func() {
		Expect(hosts.Enrol(ctx, lab.Enrolment{Name: siteGroup, Hosts: s.Hosts()})).To(Succeed())
	})
	return s
}

// remove removes the site's hosts and their objects.
func (s *remoteSite) remove(ctx context.Context) {
	GinkgoHelper()
	Expect(s.Down(ctx)).To(Succeed())
	Expect(management.DeleteAllOf(ctx, &infrav1.ElementalHost{}, client.InNamespace(namespace), client.MatchingLabels{lab.GroupLabel: siteGroup})).To(Succeed())
	registration := &infrav1.ElementalRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: siteGroup}}
	Expect(client.IgnoreNotFound(management.Delete(ctx, registration))).To(Succeed())
}

// box returns the lab host of an ElementalHost.
func (s *remoteSite) box(host *infrav1.ElementalHost) *engine.Host {
	GinkgoHelper()
	for _, box := range s.Hosts() {
		if hasAddress(host, box.Address) {
			return box
		}
	}
	Fail("no host of the site has an address of " + host.Name)
	return nil
}

// cutPower ends a host so that nothing tells its peers: a kill alone would close its connections.
func (s *remoteSite) cutPower(ctx context.Context, host *infrav1.ElementalHost) {
	GinkgoHelper()
	box := s.box(host)
	Expect(box.Disconnect(ctx)).To(Succeed())
	Expect(box.Kill(ctx)).To(Succeed())
}

// exposeGateway makes the gateway reachable from this machine. Users of a cluster are Pods of the
// management cluster, or people whom its administrator gives a way to the gateway.
func exposeGateway(ctx context.Context) {
	GinkgoHelper()
	exposeService(ctx, client.ObjectKey{Namespace: managerDeployment(ctx).Namespace, Name: "elemental-gateway"}, gatewayNodePort)
}

// exposeService makes a Service reachable from this machine.
func exposeService(ctx context.Context, key client.ObjectKey, nodePort int32) {
	GinkgoHelper()
	service := &corev1.Service{}
	Expect(management.Get(ctx, key, service)).To(Succeed())
	exposed := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name + "-for-tests"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Selector: service.Spec.Selector, Ports: []corev1.ServicePort{{
			Port: service.Spec.Ports[0].Port, TargetPort: service.Spec.Ports[0].TargetPort, NodePort: nodePort,
		}}},
	}
	if err := management.Create(ctx, exposed); !apierrors.IsAlreadyExists(err) {
		Expect(err).NotTo(HaveOccurred())
	}
	DeferCleanup(func(ctx context.Context) { Expect(management.Delete(ctx, exposed)).To(Succeed()) })
}

// dialTo returns how to connect to a server: names that only the management cluster resolves lead
// to the gateway, all others are dialed.
func dialTo(server string) func(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{}
	host, _, _ := net.SplitHostPort(strings.TrimPrefix(server, "https://"))
	if !strings.HasSuffix(host, clusterDomain) {
		return dialer.DialContext
	}
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, net.JoinHostPort(hosts.Management().Address, strconv.Itoa(gatewayNodePort)))
	}
}

// createOn applies a generated cluster whose machines use hosts of one enrolment only.
func (w workload) createOn(ctx context.Context, group string) {
	GinkgoHelper()
	w.createModified(ctx, func(object *unstructured.Unstructured) {
		if object.GetKind() == "ElementalMachineTemplate" {
			Expect(unstructured.SetNestedStringMap(object.Object, map[string]string{lab.GroupLabel: group},
				"spec", "template", "spec", "hostSelector", "matchLabels")).To(Succeed())
		}
	})
}

// expectTunnel waits until the cluster's condition TunnelReady has the status.
func (w workload) expectTunnel(ctx context.Context, status string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		condition := findCondition(w.infra(ctx).Status.Conditions, infrav1.TunnelReadyCondition)
		g.Expect(condition).To(HaveField("Status", BeEquivalentTo(status)), "%+v", condition)
	}).WithTimeout(tunnelNoticed).Should(Succeed())
}

// carrier returns the control-plane host through whose tunnel most connections go. After a fault it
// waits until there are connections again.
func (w workload) carrier(ctx context.Context, site *remoteSite) *infrav1.ElementalHost {
	GinkgoHelper()
	var found *infrav1.ElementalHost
	Eventually(func() *infrav1.ElementalHost {
		found = w.mostConnections(ctx, site)
		return found
	}).WithTimeout(2*time.Minute).ShouldNot(BeNil(), "no control-plane host carries connections")
	return found
}

// mostConnections returns nil if no control-plane host carries a connection.
func (w workload) mostConnections(ctx context.Context, site *remoteSite) *infrav1.ElementalHost {
	GinkgoHelper()
	var found *infrav1.ElementalHost
	most := 0
	for _, host := range w.claimed(ctx) {
		if !host.Spec.Claim.Role.IsControlPlane() {
			continue
		}
		// The agent itself, not its forwarder, connects to the API server for the tunnel.
		open, err := strconv.Atoi(strings.TrimSpace(shell(ctx, site.box(&host),
			`ss -Htnp state established dst :6443 | grep -c "pid=$(systemctl show --value --property MainPID elemental-agent)," || true`)))
		Expect(err).NotTo(HaveOccurred())
		if open > most {
			most, found = open, host.DeepCopy()
		}
	}
	if found != nil {
		fmt.Printf("  %s carries %d connections\n", found.Name, most)
	}
	return found
}

// status returns the status of one of the Cluster's conditions.
func (w workload) status(ctx context.Context, condition string) string {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{}
	Expect(management.Get(ctx, w.key(), cluster)).To(Succeed())
	return string(findCondition(cluster.Status.Conditions, condition).Status)
}

// connectionConditions returns the conditions that depend on connections to the cluster, with the
// times of their last changes.
func (w workload) connectionConditions(ctx context.Context) []string {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{}
	Expect(management.Get(ctx, w.key(), cluster)).To(Succeed())
	var out []string
	for _, c := range append(cluster.Status.Conditions, w.infra(ctx).Status.Conditions...) {
		switch c.Type {
		case clusterv1.ClusterRemoteConnectionProbeCondition, clusterv1.ClusterAvailableCondition, infrav1.TunnelReadyCondition, infrav1.ReadyCondition:
			out = append(out, fmt.Sprintf("%s %s since %s", c.Type, c.Status, c.LastTransitionTime.UTC().Format("15:04:05")))
		}
	}
	return out
}

// nodesInSite returns whether each Node is Ready, asked on a control-plane host of the site.
func (w workload) nodesInSite(ctx context.Context, site *remoteSite) string {
	GinkgoHelper()
	for _, host := range w.claimed(ctx) {
		if host.Spec.Claim.Role.IsControlPlane() {
			var out string
			// etcd may choose another leader meanwhile.
			Eventually(func() (err error) {
				out, err = site.box(&host).Exec(ctx, "kubectl", "--kubeconfig", adminConfig, "--request-timeout", patientTimeout.String(),
					"get", "nodes", "--output", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`)
				return err
			}).WithTimeout(time.Minute).Should(Succeed())
			return out
		}
	}
	return "no control plane"
}

func findCondition(conditions []metav1.Condition, name string) *metav1.Condition {
	for i := range conditions {
		if conditions[i].Type == name {
			return &conditions[i]
		}
	}
	return &metav1.Condition{Type: name, Status: metav1.ConditionUnknown, Message: "there is no such condition"}
}
