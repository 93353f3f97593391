//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
)

const (
	// watchTime is how long a watch has to last: longer than the idle time of most proxies.
	watchTime = 15 * time.Minute
	// userAccount is a ServiceAccount of the management cluster, userName its name in workload
	// clusters.
	userAccount = "ann"
	userName    = "management:system:serviceaccount:" + namespace + ":" + userAccount
)

var _ = Describe("Users of a cluster that nothing can dial into", Ordered, ContinueOnFailure, Label("tunnel-users"), func() {
	w := workload{lab.Cluster{Name: "users", Flavor: "tunnel", ControlPlanes: 1, Workers: 1}}
	var (
		site        *remoteSite
		ann         *user
		watch, logs *program
	)

	BeforeAll(func(ctx context.Context) {
		site = startSite(ctx)
		exposeGateway(ctx)
		step("users: 1+1 running", func() {
			w.createOn(ctx, siteGroup)
			w.expectRunning(ctx, 2)
		})
		ann = w.user(ctx)
		// API servers learn of new rights after a moment, those that the gateway makes included. The
		// sessions below begin once and must last.
		step("users: let in", func() {
			Eventually(func() (string, error) { return ann.whoami(ctx) }).WithTimeout(time.Minute).Should(Equal(userName))
		})
		step("users: Pod running", func() { w.runSessionPod(ctx) })
		watch = ann.start(ctx, nil, "--namespace", "kube-node-lease", "get", "leases", "--watch")
		logs = ann.start(ctx, nil, "logs", "--follow", "session", "--container", "clock")
	}, NodeTimeout(25*time.Minute))

	It("are themselves", func(ctx context.Context) {
		Expect(ann.whoami(ctx)).To(Equal(userName))
	}, SpecTimeout(30*time.Minute))

	It("exec, attach, copy and forward ports by WebSocket", func(ctx context.Context) {
		ann.expectSessions(ctx, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true", "KUBECTL_PORT_FORWARD_WEBSOCKETS=true")
	}, SpecTimeout(30*time.Minute))

	It("exec, attach, copy and forward ports by SPDY", func(ctx context.Context) {
		ann.expectSessions(ctx, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false")
	}, SpecTimeout(30*time.Minute))

	It("watch, and follow logs, for a quarter of an hour", func(context.Context) {
		step("users: 15 minutes of a watch and of logs", func() {
			for _, p := range []*program{watch, logs} {
				Consistently(p.running).WithTimeout(time.Until(p.began.Add(watchTime))).WithPolling(5*time.Second).Should(BeTrue(), p.output)
				before := len(p.output())
				Eventually(func() int { return len(p.output()) }).WithTimeout(time.Minute).Should(BeNumerically(">", before), "it still gets data")
			}
		})
		watch.stop()
		logs.stop()
	}, SpecTimeout(30*time.Minute))

	It("have not had anybody dial into the site", func(ctx context.Context) {
		Expect(site.Refused(ctx)).To(BeZero())
		step("users: cluster deleted", func() { w.delete(ctx) })
	}, SpecTimeout(30*time.Minute))
})

// user runs kubectl with a kubeconfig that leads through the gateway.
type user struct {
	kubectl, kubeconfig string
}

// user makes userAccount a user who may do everything in the workload cluster, and nothing in
// the management cluster.
func (w workload) user(ctx context.Context) *user {
	GinkgoHelper()
	gateway := exposeGatewayForUsers(ctx)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: userAccount}}
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "users-of-" + w.Name},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{clusterv1.GroupVersion.Group}, Resources: []string{"clusters/proxy"}, ResourceNames: []string{w.Name}, Verbs: []string{"create"},
		}},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: userAccount}},
	}
	for _, object := range []client.Object{account, role, binding} {
		Expect(management.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(management.Delete(ctx, object)).To(Succeed()) })
	}
	Expect(w.client(ctx).Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: userAccount}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: userName}},
	})).To(Succeed())
	tools, err := hosts.Tools(ctx)
	Expect(err).NotTo(HaveOccurred())
	u := &user{kubectl: filepath.Join(tools, "kubectl"), kubeconfig: filepath.Join(GinkgoT().TempDir(), "user.kubeconfig")}
	token := kubectl(ctx, "--namespace", namespace, "create", "token", userAccount, "--duration", "2h")
	Expect(os.WriteFile(u.kubeconfig, gateway.kubeconfig(w.key(), token), 0o600)).To(Succeed())
	return u
}

// whoami returns whom the workload cluster takes the user for.
func (u *user) whoami(ctx context.Context) (string, error) {
	return u.try(ctx, nil, "", "auth", "whoami", "--output", "jsonpath={.status.userInfo.username}")
}

// expectSessions has all kinds of sessions, with variables that choose their protocol.
func (u *user) expectSessions(ctx context.Context, variables ...string) {
	GinkgoHelper()
	Expect(u.run(ctx, variables, "", "exec", "session", "--container", "clock", "--", "echo", "hello")).To(Equal("hello"))
	Expect(u.run(ctx, variables, "from a file\n", "exec", "--stdin", "session", "--container", "clock", "--", "cat")).To(Equal("from a file"))
	u.expectAttached(ctx, variables)
	u.expectCopies(ctx, variables)
	u.expectForwardedPort(ctx, variables)
}

// expectAttached attaches to a container that sends back what it gets.
func (u *user) expectAttached(ctx context.Context, variables []string) {
	GinkgoHelper()
	p := u.start(ctx, variables, "attach", "--stdin", "session", "--container", "echo")
	defer p.stop()
	Eventually(func() string {
		_, _ = p.stdin.Write([]byte("attached\n"))
		return p.output()
	}).WithTimeout(time.Minute).Should(ContainSubstring("attached"))
}

// expectCopies copies a file into the container and back.
func (u *user) expectCopies(ctx context.Context, variables []string) {
	GinkgoHelper()
	content := strings.Repeat("0123456789abcdef\n", 1<<16)
	from, to := filepath.Join(GinkgoT().TempDir(), "from"), filepath.Join(GinkgoT().TempDir(), "to")
	Expect(os.WriteFile(from, []byte(content), 0o600)).To(Succeed())
	u.run(ctx, variables, "", "cp", "--container", "clock", from, "session:/shared/file")
	u.run(ctx, variables, "", "cp", "--container", "clock", "session:/shared/file", to)
	copied, err := os.ReadFile(to)
	Expect(err).NotTo(HaveOccurred())
	isSame := string(copied) == content // the content is too long for a message
	Expect(isSame).To(BeTrue(), "%d bytes came back of %d", len(copied), len(content))
}
