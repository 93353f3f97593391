package gateway

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	. "github.com/onsi/gomega"
)

func TestUsers(t *testing.T) {
	r := newRig(t)
	ann := r.user(annToken)
	admitted := r.admit("ann", userNamed("ann"))
	r.create(r.child, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "developer"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps", "pods/exec", "pods/log"}, Verbs: []string{"get", "list", "watch", "create"}},
	}})
	bound := r.bind("ann", "developer", userNamed("ann"))
	r.pod("p")
	t.Run("Whoami", func(t *testing.T) { r.on(t).testWhoami(ann) })
	t.Run("Denials", func(t *testing.T) { r.on(t).testDenials(ann) })
	t.Run("ForgedHeaders", func(t *testing.T) { r.on(t).testForgedHeaders() })
	t.Run("Audit", func(t *testing.T) { r.on(t).testAudit(ann) })
	t.Run("Sessions", func(t *testing.T) { r.on(t).testSessions(ann) })
	t.Run("Rights", func(t *testing.T) { r.on(t).testRights(ann, admitted, bound) })
}

// on returns the rig for a subtest.
func (r *rig) on(t *testing.T) *rig {
	t.Helper()
	sub := *r
	sub.t, sub.WithT = t, NewWithT(t)
	return &sub
}

// The caller is who the management cluster says, whatever the credentials are.
func (r *rig) testWhoami(ann *rest.Config) {
	info := r.whoami(ann)
	r.Expect(info.Username).To(Equal("ann"))
	r.Expect(info.Groups).To(ConsistOf("ops", "system:authenticated"))

	r.admit("bob", userNamed("bob"))
	bob := r.user("")
	certificate := r.management.AddUser(r.t, "bob", "dev", "system:masters", "kubeadm:cluster-admins")
	bob.CertData, bob.KeyData = certificate.CertData, certificate.KeyData
	info = r.whoami(bob)
	r.Expect(info.Username).To(Equal("bob"))
	r.Expect(info.Groups).To(ConsistOf("dev", "system:authenticated"))

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "ci"}}
	r.create(r.management, account)
	r.admit("ci", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: r.namespace, Name: "ci"})
	token, err := kubernetes.NewForConfigOrDie(r.management.Config).CoreV1().ServiceAccounts(r.namespace).
		CreateToken(r.t.Context(), "ci", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	r.Expect(err).NotTo(HaveOccurred())
	info = r.whoami(r.user(token.Status.Token))
	r.Expect(info.Username).To(Equal("management:system:serviceaccount:" + r.namespace + ":ci"))
	r.Expect(info.Groups).To(ConsistOf("system:authenticated"))

	// An administrator of the management cluster is not one of the workload cluster.
	admin := r.user("")
	admin.CertData, admin.KeyData = r.management.Config.CertData, r.management.Config.KeyData
	r.Expect(r.whoami(admin).Groups).NotTo(ContainElement("system:masters"))
	_, err = r.clientOf(admin).CoreV1().Secrets("default").List(r.t.Context(), metav1.ListOptions{})
	r.Expect(err).To(MatchError(apierrors.IsForbidden, "IsForbidden"))

	_, err = r.clientOf(r.user("invented")).CoreV1().Secrets("default").List(r.t.Context(), metav1.ListOptions{})
	r.Expect(err).To(MatchError(apierrors.IsUnauthorized, "IsUnauthorized"))
}

// Who is not let in hears it from the gateway, and who is from the workload cluster.
func (r *rig) testDenials(ann *rest.Config) {
	_, err := r.clientOf(ann).RbacV1().ClusterRoles().List(r.t.Context(), metav1.ListOptions{})
	r.Expect(err).To(MatchError(apierrors.IsForbidden, "IsForbidden"))
	r.Expect(err).To(MatchError(ContainSubstring(`User "ann" cannot list resource "clusterroles"`)))

	eve := r.user("")
	certificate := r.management.AddUser(r.t, "eve")
	eve.CertData, eve.KeyData = certificate.CertData, certificate.KeyData
	for _, name := range []string{cluster, "absent"} {
		eve.Host = r.url + "/clusters/" + r.namespace + "/" + name
		_, err = r.clientOf(eve).CoreV1().ConfigMaps("default").List(r.t.Context(), metav1.ListOptions{})
		r.Expect(err).To(MatchError(ContainSubstring(`user "eve" may not create clusters/proxy of cluster ` + name)))
	}
}

// The audit logs of both sides name the request alike, and the workload cluster's names the
// impersonator too.
func (r *rig) testAudit(ann *rest.Config) {
	transport, err := rest.TransportFor(ann)
	r.Expect(err).NotTo(HaveOccurred())
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, ann.Host+"/api/v1/namespaces/default/configmaps?limit=7", http.NoBody)
	r.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Audit-ID", "chosen-by-the-caller")
	response, err := transport.RoundTrip(request)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(response.Body.Close()).To(Succeed())
	r.Expect(response.StatusCode).To(Equal(http.StatusOK))
	id := response.Header.Get("Audit-ID")
	r.Expect(id).NotTo(Or(BeEmpty(), Equal("chosen-by-the-caller")))
	var of []auditEvent
	r.Eventually(func() []auditEvent {
		of = nil
		for _, e := range r.childEvents() {
			if e.AuditID == id {
				of = append(of, e)
			}
		}
		return of
	}).WithTimeout(patience).Should(HaveLen(1))
	r.Expect(of[0].RequestURI).To(HaveSuffix("limit=7"))
	r.Expect(of[0].User.Username).To(Equal("system:serviceaccount:elemental-system:elemental-proxy"))
	r.Expect(of[0].ImpersonatedUser.Username).To(Equal("ann"))
	r.Expect(of[0].ImpersonatedUser.Groups).To(ContainElement("ops"))
	r.Eventually(r.lines).WithTimeout(patience).Should(Receive(And(
		ContainSubstring(id), ContainSubstring(`"user"="ann"`), ContainSubstring(`"path"="/api/v1/namespaces/default/configmaps"`), ContainSubstring(`"code"=200`),
	)))
}

// Sessions by SPDY and by WebSocket, logs that are followed, and a watch of a quarter of an hour.
func (r *rig) testSessions(ann *rest.Config) {
	c := r.clientOf(ann)
	target := c.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name("p").SubResource("exec").VersionedParams(
		&corev1.PodExecOptions{Container: "c", Command: []string{"cat"}, Stdin: true, Stdout: true}, clientgoscheme.ParameterCodec).URL()
	spdy, err := remotecommand.NewSPDYExecutor(ann, http.MethodPost, target)
	r.Expect(err).NotTo(HaveOccurred())
	sockets, err := remotecommand.NewWebSocketExecutor(ann, http.MethodGet, target.String())
	r.Expect(err).NotTo(HaveOccurred())
	input := strings.Repeat("a line of input\n", 10000)
	for name, executor := range map[string]remotecommand.Executor{"SPDY": spdy, "WebSocket": sockets} {
		var out bytes.Buffer
		err := executor.StreamWithContext(r.t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(input), Stdout: &out})
		r.Expect(err).NotTo(HaveOccurred(), name)
		isSame := out.String() == input // the input is too long for a message
		r.Expect(isSame).To(BeTrue(), "%s: %d bytes", name, out.Len())
	}

	logs, err := c.CoreV1().Pods("default").GetLogs("p", &corev1.PodLogOptions{Follow: true}).Stream(r.t.Context())
	r.Expect(err).NotTo(HaveOccurred())
	line := make([]byte, 6)
	_, err = io.ReadFull(logs, line)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(string(line)).To(Equal("hello\n"))
	r.Expect(logs.Close()).To(Succeed())

	watched, err := c.CoreV1().ConfigMaps("default").Watch(r.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=seen"})
	r.Expect(err).NotTo(HaveOccurred())
	defer watched.Stop()
	for range 30 { // the caller is judged each time
		r.clock.Step(30 * time.Second)
	}
	r.create(r.child, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "seen"}})
	r.Eventually(watched.ResultChan()).WithTimeout(patience).Should(Receive(HaveField("Type", watch.Added)))
}

// A right that is taken away in the workload cluster counts with the next request. In the
// management cluster it counts after ten seconds, and ends open requests within 40 s.
func (r *rig) testRights(ann *rest.Config, admitted *rbacv1.RoleBinding, bound *rbacv1.ClusterRoleBinding) {
	c := r.clientOf(ann)
	list := func() error {
		_, err := c.CoreV1().ConfigMaps("default").List(r.t.Context(), metav1.ListOptions{})
		return err
	}
	watched, err := c.CoreV1().ConfigMaps("default").Watch(context.Background(), metav1.ListOptions{})
	r.Expect(err).NotTo(HaveOccurred())
	defer watched.Stop()
	r.Expect(list()).To(Succeed())
	r.Expect(r.child.Client(r.t).Delete(r.t.Context(), bound)).To(Succeed())
	// No clock moves: the API server itself needs a moment.
	r.Eventually(list).WithTimeout(patience).WithPolling(often).Should(MatchError(ContainSubstring(`User "ann" cannot list`)))
	bound.ResourceVersion = ""
	r.create(r.child, bound)
	r.Eventually(list).WithTimeout(patience).WithPolling(often).Should(Succeed())

	r.Expect(r.management.Client(r.t).Delete(r.t.Context(), admitted)).To(Succeed())
	r.Expect(list()).To(Succeed(), "the decision is kept for ten seconds")
	r.clock.Step(10*time.Second + time.Millisecond)
	r.Eventually(func() error {
		err := list()
		if err == nil {
			r.clock.Step(10 * time.Second) // the API server had not seen the deletion
		}
		return err
	}).WithTimeout(patience).WithPolling(often).Should(MatchError(ContainSubstring("may not create clusters/proxy")))
	r.clock.Step(30 * time.Second)
	for {
		select {
		case _, ok := <-watched.ResultChan():
			if !ok {
				return
			}
		case <-time.After(patience):
			r.t.Fatal("the watch goes on")
		}
	}
}
