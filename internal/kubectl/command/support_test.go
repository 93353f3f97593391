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

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/clientcmd"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
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

// supported creates a fleet of which half is dead, with secrets where people put them.
func supported(f *fixture) {
	sites(f)
	f.Host("dead", disconnected, func(h *infrav1.ElementalHost) {
		h.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": `{"token":"hunter2"}`, "note": "hunter2"}
		h.Spec.Fence = &infrav1.HostFence{Reason: "Ms Smith hunter2"}
		h.Status.Operations = []infrav1.HostOperation{{
			Type: infrav1.OperationBootstrap, ID: "id", State: infrav1.OperationFailed, Message: "kubeadm join --token hunter2: exit status 1",
		}}
	})
	f.Create(&corev1.Secret{ObjectMeta: f.Meta("bootstrap-data"), StringData: map[string]string{"value": "hunter2"}})
	f.Create(&corev1.Pod{ObjectMeta: f.Meta("manager"), Spec: corev1.PodSpec{NodeName: "nowhere", Containers: []corev1.Container{{
		Name: "manager", Image: "manager:v1", Env: []corev1.EnvVar{{Name: "KEY", Value: "hunter2"}},
	}}}})
}

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
	f.Expect(files["objects/elementalhost.yaml"]).To(And(ContainSubstring("name: dead"), ContainSubstring("name: h3")))
	f.Expect(files["objects/elementalcluster.yaml"]).To(ContainSubstring("The address of host h2"))
	f.Expect(files["summary.txt"]).To(And(ContainSubstring("ElementalHost: 5, 4 connected"), ContainSubstring("Pods of the manager: 1")))
	f.Expect(files["manager/pods.yaml"]).To(ContainSubstring("image: manager:v1"))
	// No node runs the Pod, so it has no log.
	f.Expect(files["missing.txt"]).To(ContainSubstring("manager/manager.log: reading the log: "))
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
	sites(f)
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
		Not(ContainSubstring("elementalhost.yaml"))))
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
