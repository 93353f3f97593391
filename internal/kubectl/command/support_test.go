package command_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// unpack returns the files of an archive.
func unpack(t *testing.T, name string) map[string]string {
	t.Helper()
	g := NewWithT(t)
	f, err := os.Open(name)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(f.Close()).To(Succeed()) }()
	zip, err := gzip.NewReader(f)
	g.Expect(err).NotTo(HaveOccurred())
	files := map[string]string{}
	for archive := tar.NewReader(zip); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		g.Expect(err).NotTo(HaveOccurred())
		text, err := io.ReadAll(archive)
		g.Expect(err).NotTo(HaveOccurred())
		files[strings.TrimPrefix(header.Name, "support/")] = string(text)
	}
}

// supported creates a fleet of six hosts of which three are dead, with secrets where people put them.
func supported(f *fixture) {
	sites(f)
	dead := func(h *infrav1.ElementalHost) {
		disconnected(h)
		h.Status.Agent = &infrav1.HostAgent{Version: "v0.1.0"}
	}
	conditions := func(h *infrav1.ElementalHost) { hoststatus.Update(h, metav1.NewTime(now)) }
	worker := &infrav1.ElementalHost{ObjectMeta: f.Meta("worker")}
	controllertest.ChangeStatus(f.Fixture, worker, func(h *infrav1.ElementalHost) {
		dead(h)
		conditions(h)
	})
	f.Host("dead-free", dead, conditions, func(h *infrav1.ElementalHost) {
		h.Status.Log = answer(h, "1", infrav1.OperationReset, "r1", infrav1.OperationSucceeded)
		h.Status.Log.SecretName = "bootstrap-data"
	})
	failed := f.Host("dead", dead, claimed(infrav1.ClaimBound), func(h *infrav1.ElementalHost) {
		h.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": `{"token":"hunter2"}`, "note": "hunter2"}
		h.Spec.Fence = &infrav1.HostFence{Reason: "Ms Smith hunter2"}
		h.Status.Operations = []infrav1.HostOperation{{
			Type: infrav1.OperationBootstrap, ID: "id", State: infrav1.OperationFailed, Message: "kubeadm join --token hunter2: exit status 1",
		}}
		h.Status.Log = answer(h, "1", infrav1.OperationBootstrap, "id", infrav1.OperationFailed)
	}, conditions)
	f.secretOf(failed, "1", "[preflight] Running pre-flight checks\nkubeadm join --token hunter2\n"+digest+"\n")
	f.Create(&corev1.Event{
		ObjectMeta: f.Meta("dead.1"), InvolvedObject: corev1.ObjectReference{Kind: "ElementalHost", Namespace: f.Namespace, Name: "dead"},
		Reason: infrav1.DisconnectedReason, Message: "The agent is silent: --token hunter2",
	})
	f.Create(&corev1.Secret{ObjectMeta: f.Meta("bootstrap-data"), StringData: map[string]string{"value": "hunter2", "log": "hunter2"}})
	f.Create(&corev1.Pod{ObjectMeta: f.Meta("manager"), Spec: corev1.PodSpec{NodeName: "nowhere", Containers: []corev1.Container{{
		Name: "manager", Image: "manager:v1", Env: []corev1.EnvVar{{Name: "KEY", Value: "hunter2"}},
	}}}})
}

// digest has the form of kubeadm's certificate keys.
const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// collect runs the command, and returns the files of the archive.
func (f *fixture) collect(args ...string) map[string]string {
	f.T.Helper()
	name := filepath.Join(f.T.TempDir(), "support.tar.gz")
	_, err := f.run(append([]string{"support-bundle", "-o", name, "--manager-namespace", f.Namespace}, args...)...)
	f.Expect(err).NotTo(HaveOccurred())
	info, err := os.Stat(name)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600))
	return unpack(f.T, name)
}

func TestThreat85_SupportBundle(t *testing.T) {
	f := newFixture(t)
	supported(f)
	pod := &corev1.Pod{ObjectMeta: f.Meta("manager")}
	f.Refresh(pod)
	pod.Labels = map[string]string{"control-plane": "controller-manager"}
	f.Expect(f.Admin.Update(f.Ctx, pod)).To(Succeed())
	files := f.collect()
	for name, text := range files {
		f.Expect(text).NotTo(ContainSubstring("hunter2"), name)
	}
	f.Expect(hostsOf(f, files)).To(And(HaveLen(6), HaveKey("h3"), HaveKeyWithValue("dead", isDead(infrav1.BootstrapFailedReason)),
		HaveKeyWithValue("dead-free", isDead(infrav1.NotClaimedReason)), HaveKeyWithValue("worker", isDead(infrav1.BootstrapSucceededReason))))
	f.Expect(files["objects/event.yaml"]).To(And(ContainSubstring("name: dead\n"), ContainSubstring("message: 'The agent is silent: --token")))
	f.Expect(files["objects/elementalcluster.yaml"]).To(ContainSubstring("The address of host h2"))
	f.Expect(files["summary.txt"]).To(And(
		ContainSubstring("ElementalHost: 6, 3 connected"), ContainSubstring("Pods of the manager: 1"), ContainSubstring("Logs of hosts: 1\n")))
	f.Expect(files["hosts/dead.log"]).To(And(ContainSubstring("Running pre-flight checks"), Not(ContainSubstring(digest))))
	f.Expect(files).NotTo(HaveKey("hosts/dead-free.log"))
	f.Expect(files["missing.txt"]).NotTo(ContainSubstring("dead-free"), "nobody reads the Secret of others that its status names")
	f.Expect(files["manager/pods.yaml"]).To(ContainSubstring("image: manager:v1"))
	// No node runs the Pod, so it has no log.
	f.Expect(files["missing.txt"]).To(ContainSubstring("manager/manager.log: reading the log: "))
}

// hostsOf returns the hosts of an archive by their names.
func hostsOf(f *fixture, files map[string]string) map[string]*infrav1.ElementalHost {
	f.T.Helper()
	hosts := map[string]*infrav1.ElementalHost{}
	for text := range strings.SplitSeq(strings.TrimPrefix(files["objects/elementalhost.yaml"], "---\n"), "\n---\n") {
		host := &infrav1.ElementalHost{}
		f.Expect(yaml.Unmarshal([]byte(text), host)).To(Succeed())
		hosts[host.Name] = host
	}
	return hosts
}

// isDead matches a host that says which agent it had, since when nobody has heard of it, and what
// became of its bootstrap.
func isDead(bootstrapped string) types.GomegaMatcher {
	return HaveField("Status", And(
		HaveField("Agent.Version", "v0.1.0"),
		HaveField("Connection.Since.Time", BeTemporally("==", now.Add(-time.Hour))),
		HaveField("Conditions", ContainElements(
			And(HaveField("Type", infrav1.ConnectedCondition), HaveField("Reason", infrav1.DisconnectedReason), HaveField("Message", ContainSubstring("since 2026-05-04T11:00:00Z"))),
			And(HaveField("Type", infrav1.BootstrappedCondition), HaveField("Reason", bootstrapped))))))
}

// An archive of one cluster has no Machines of others.
func TestSupportBundleOfOneCluster(t *testing.T) {
	f := newFixture(t)
	sites(f)
	f.Cluster("c2")
	f.Machine("c2", "other")
	files := f.collect("c1")
	f.Expect(files["objects/cluster.yaml"]).NotTo(ContainSubstring("name: c2"))
	f.Expect(files["objects/machine.yaml"]).To(And(ContainSubstring("name: m-h1"), Not(ContainSubstring("name: other"))))
}

// What a person may not read is named, and the rest is there.
func TestSupportBundleWithFewRights(t *testing.T) {
	f := newFixture(t)
	supported(f)
	role := &rbacv1.Role{ObjectMeta: f.Meta("hosts"), Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{infrav1.GroupVersion.Group}, Resources: []string{"elementalhosts"}, Verbs: []string{"list"},
	}}}
	f.Create(role)
	f.Create(&rbacv1.RoleBinding{ObjectMeta: f.Meta("hosts"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "hosts"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "viewer"}}})
	config, err := clientcmd.LoadFromFile(f.kubeconfig)
	f.Expect(err).NotTo(HaveOccurred())
	config.AuthInfos["admin"].Impersonate = "viewer"
	f.Expect(clientcmd.WriteToFile(*config, f.kubeconfig)).To(Succeed())
	files := f.collect()
	f.Expect(files["objects/elementalhost.yaml"]).To(ContainSubstring("name: h1"))
	f.Expect(files["missing.txt"]).To(And(ContainSubstring("objects/machine.yaml: listing: "), ContainSubstring("manager/pods.yaml: "),
		ContainSubstring("hosts/dead.log: the log is in Secret dead-log until"), Not(ContainSubstring("elementalhost.yaml"))))
	f.Expect(files).NotTo(HaveKey("hosts/dead.log"))

	role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"dead-log"}, Verbs: []string{"get"}})
	f.Expect(f.Admin.Update(f.Ctx, role)).To(Succeed())
	f.Eventually(func(g Gomega) {
		files := f.collect()
		g.Expect(files["hosts/dead.log"]).To(ContainSubstring("Running pre-flight checks"))
		g.Expect(files["missing.txt"]).NotTo(ContainSubstring("ecret"), "no other Secret is read")
	}).WithTimeout(time.Minute).Should(Succeed())
}

// A file that exists is never replaced.
func TestSupportBundleReplacesNothing(t *testing.T) {
	f := newFixture(t)
	name := filepath.Join(t.TempDir(), "support.tar.gz")
	f.Expect(os.WriteFile(name, []byte("mine"), 0o600)).To(Succeed())
	_, err := f.run("support-bundle", "-o", name)
	f.Expect(err).To(MatchError(ContainSubstring("creating the archive: ")))
	text, err := os.ReadFile(name)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(string(text)).To(Equal("mine"))
}
