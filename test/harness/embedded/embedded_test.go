//go:build embedded

package embedded

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const soon = 3 * time.Minute

// TestCluster uses one cluster for everything, as a start takes some seconds.
func TestCluster(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("TMPDIR", t.TempDir())
	var said bytes.Buffer
	cluster, err := Start(t.Context(), Options{Progress: io.MultiWriter(os.Stderr, &said)})
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(cluster.Stop()).To(Succeed()) }()
	admin := newClient(g, cluster.Config)

	t.Run("Webhooks", func(t *testing.T) { testWebhooks(t, admin) })
	t.Run("Conversion", func(t *testing.T) { testConversion(t, admin) })
	t.Run("Trust", func(t *testing.T) { testTrust(t, cluster) })
	t.Run("NoExtension", func(t *testing.T) { testNoExtension(t, admin) })
	t.Run("Garbage", func(t *testing.T) { testGarbage(t, admin) })
	t.Run("Template", func(t *testing.T) { testTemplate(t, admin) })
	t.Run("SideBySide", func(t *testing.T) { testSideBySide(t, admin) })
	t.Run("Crash", func(t *testing.T) { testCrash(t, cluster, &said) })
	g.Expect(cluster.Stop()).To(Succeed())
	entries, err := os.ReadDir(os.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(entries).To(BeEmpty(), "what is left of both clusters")
}

// A start that fails says why, and leaves nothing.
func TestStartFails(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("TMPDIR", t.TempDir())
	_, err := Start(t.Context(), Options{Progress: os.Stderr, ManagerArgs: []string{"--no-such-flag"}})
	g.Expect(err).To(MatchError(And(ContainSubstring("manager ended by itself (exit status 1)"), ContainSubstring("unknown flag: --no-such-flag"))))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Start(ctx, Options{})
	g.Expect(err).To(MatchError(context.Canceled))

	entries, err := os.ReadDir(os.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(entries).To(BeEmpty())
	programs, err := filepath.Glob("/proc/[0-9]*/environ")
	g.Expect(err).NotTo(HaveOccurred())
	for _, file := range programs {
		// Some end meanwhile, others are somebody else's.
		if environment, err := os.ReadFile(file); err == nil {
			g.Expect(string(environment)).NotTo(ContainSubstring("HOME="+os.TempDir()), file)
		}
	}
}

// newClient returns a client that reads from the API server.
func newClient(g Gomega, config *rest.Config) client.Client {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, controlplanev1.AddToScheme, runtimev1.AddToScheme, infrav1.AddToScheme,
	} {
		g.Expect(add(scheme)).To(Succeed())
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	return c
}

func makeNamespace(t *testing.T, c client.Client) *corev1.Namespace {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	NewWithT(t).Expect(c.Create(t.Context(), ns)).To(Succeed())
	return ns
}

// Anybody on the machine can dial the servers, and a manager has the rights that it is installed with.
func testTrust(t *testing.T, cluster *Cluster) {
	g := NewWithT(t)
	anonymous := rest.AnonymousClientConfig(cluster.Config)
	g.Expect(newClient(g, anonymous).List(t.Context(), &corev1.SecretList{})).To(MatchError(apierrors.IsForbidden, "IsForbidden"))

	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(cluster.Folder, "manager.kubeconfig"))
	g.Expect(err).NotTo(HaveOccurred())
	manager := newClient(g, config)
	g.Expect(manager.List(t.Context(), &infrav1.ElementalHostList{})).To(Succeed())
	g.Expect(manager.List(t.Context(), &corev1.NodeList{})).To(MatchError(apierrors.IsForbidden, "IsForbidden"))
	config, err = clientcmd.BuildConfigFromFlags("", filepath.Join(cluster.Folder, "capi-core.kubeconfig"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(newClient(g, config).List(t.Context(), &infrav1.ElementalHostList{})).To(Succeed(), "by an aggregated role")

	// Only webhooks are served on all addresses: Cluster API's managers can't be told one.
	port := regexp.MustCompile(`(?:127\.0\.0\.1:|--secure-port=)([0-9]+)`)
	served := map[string]bool{}
	for _, id := range allPIDs(cluster) {
		args, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(id), "cmdline"))
		g.Expect(err).NotTo(HaveOccurred())
		for _, match := range port.FindAllSubmatch(args, -1) {
			served[string(match[1])] = true
		}
	}
	g.Expect(served).To(HaveLen(4+2*4+2), "etcd's and the servers', two of each manager's, those of the agent API and the gateway")
	for port := range served {
		_, err := net.Dial("tcp", "127.0.0.2:"+port)
		g.Expect(err).To(MatchError(syscall.ECONNREFUSED), "port %s", port)
	}
	args, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid(g, cluster, "etcd")), "cmdline"))
	g.Expect(err).NotTo(HaveOccurred())
	health := "https://127.0.0.1:" + string(port.FindSubmatch(args)[1]) + "/health"
	tls := rest.TLSClientConfig{CAFile: cluster.trust.file(storeCA)}
	stranger, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: tls})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(probe(t.Context(), stranger, health)).NotTo(Succeed(), "whoever writes there is an administrator")
	tls.CertFile, tls.KeyFile = cluster.trust.file(storeClient+".crt"), cluster.trust.file(storeClient+".key")
	server, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: tls})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(probe(t.Context(), server, health)).To(Succeed())
	info, err := os.Stat(cluster.Folder)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o700)))
}

// Another cluster beside one shares nothing with it, and its end changes nothing there.
func testSideBySide(t *testing.T, admin client.Client) {
	g := NewWithT(t)
	ns := makeNamespace(t, admin)
	other, err := Start(t.Context(), Options{Progress: os.Stderr, ManagerArgs: []string{"--v=2"}})
	g.Expect(err).NotTo(HaveOccurred())
	pids := allPIDs(other)
	g.Expect(pids).To(HaveLen(7))
	theirs := newClient(g, other.Config)
	g.Expect(theirs.Get(t.Context(), client.ObjectKeyFromObject(ns), &corev1.Namespace{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	makeNamespace(t, admin)
	g.Expect(other.Err()).NotTo(HaveOccurred())
	g.Expect(other.Stop()).To(Succeed())
	g.Expect(other.Stop()).To(Succeed(), "again")
	g.Expect(other.Err()).NotTo(HaveOccurred())
	g.Expect(other.Folder).NotTo(BeAnExistingFile())
	expectGone(g, pids)
	makeNamespace(t, admin)
}

// When a process dies the others are stopped, and it is said which it was.
func testCrash(t *testing.T, cluster *Cluster, said fmt.Stringer) {
	g := NewWithT(t)
	pids := allPIDs(cluster)
	g.Expect(cluster.Done()).NotTo(BeClosed())
	g.Expect(syscall.Kill(pid(g, cluster, "kube-controller-manager"), syscall.SIGKILL)).To(Succeed())
	g.Eventually(cluster.Done()).WithTimeout(soon).Should(BeClosed())
	g.Expect(cluster.Err()).To(MatchError(And(
		HavePrefix("kube-controller-manager ended by itself (signal: killed)"), ContainSubstring(filepath.Join(cluster.Folder, "logs")))))
	g.Expect(said.String()).To(ContainSubstring("Stopping all that is left: kube-controller-manager ended by itself"))
	expectGone(g, pids)
	g.Expect(filepath.Join(cluster.Folder, "logs", "manager.log")).To(BeARegularFile(), "somebody may want to read it")
	g.Expect(cluster.Stop()).To(Succeed())
	_, err := net.Dial("tcp", strings.TrimPrefix(cluster.AgentURL, "https://"))
	g.Expect(err).To(MatchError(syscall.ECONNREFUSED))
}

func pid(g Gomega, cluster *Cluster, name string) int {
	for _, layer := range cluster.processes {
		for _, p := range layer {
			if p.Name() == name {
				return p.PID()
			}
		}
	}
	g.Expect(name).To(BeEmpty(), "no such process")
	return 0
}

func allPIDs(cluster *Cluster) []int {
	var pids []int
	for _, layer := range cluster.processes {
		for _, p := range layer {
			pids = append(pids, p.PID())
		}
	}
	return pids
}

// expectGone expects that no process, nor a group of one, is left.
func expectGone(g Gomega, pids []int) {
	for _, pid := range pids {
		g.Expect(syscall.Kill(pid, 0)).To(MatchError(syscall.ESRCH))
		g.Expect(syscall.Kill(-pid, 0)).To(MatchError(syscall.ESRCH))
	}
}
