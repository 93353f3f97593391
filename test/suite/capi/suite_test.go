//go:build e2e

package capi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
)

const (
	// checkout is the root folder of the repository.
	checkout = "../../.."
	// requiredHosts is the number of hosts for the largest spec: three control planes, a worker, and one more for a
	// rollout.
	requiredHosts = 5
	// pauseOfSpecs is the image of the Pods that specs make. The hosts have pauseOfHosts, which does the same.
	pauseOfSpecs, pauseOfHosts = "registry.k8s.io/pause:3.10.1", "registry.k8s.io/pause:3.10.2"
)

// site is what all specs share.
type site struct {
	hosts *lab.Lab
	// proxy is the management cluster for Cluster API's test framework.
	proxy     framework.ClusterProxy
	config    *clusterctl.E2EConfig
	artifacts string
}

var shared site

func TestCAPI(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "capi")
}

var _ = BeforeSuite(func(ctx context.Context) {
	ctrl.SetLogger(logr.Discard())
	var err error
	shared.artifacts, err = filepath.Abs(filepath.Join(checkout, "out", "e2e", "capi"))
	Expect(err).NotTo(HaveOccurred())
	Expect(os.MkdirAll(shared.artifacts, 0o755)).To(Succeed())
	options, err := lab.Options{Out: os.Stdout, Checkout: checkout}.FromEnvironment(os.Getenv)
	Expect(err).NotTo(HaveOccurred())
	if options.Hosts == 0 {
		options.Hosts = requiredHosts
	}
	options.Release = releaseWithFlavors(ctx, options)
	shared.hosts, err = lab.New(options)
	Expect(err).NotTo(HaveOccurred())
	if !keepsLab() {
		// Clusters of a run that was killed would still use its hosts.
		Expect(shared.hosts.Down(ctx, false)).To(Succeed())
	}
	Expect(shared.hosts.Up(ctx)).To(Succeed())
	Expect(shared.hosts.Enrol(ctx, lab.Enrolment{Name: "lab", Hosts: shared.hosts.Hosts()})).To(Succeed())
	for _, host := range shared.hosts.Hosts() {
		_, err := host.Exec(ctx, "ctr", "--namespace", "k8s.io", "images", "tag", "--force", pauseOfHosts, pauseOfSpecs)
		Expect(err).NotTo(HaveOccurred())
	}
	scheme := runtime.NewScheme()
	framework.TryAddDefaultSchemes(scheme)
	Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	shared.proxy = framework.NewClusterProxy("lab", shared.hosts.Kubeconfig(), scheme)
	shared.config = configuration(ctx, shared.hosts)
	// The flavor topology-vip has it.
	Expect(os.Setenv("VIRTUAL_ADDRESS", shared.hosts.FreeAddress(0))).To(Succeed())
}, NodeTimeout(60*time.Minute))

var _ = AfterSuite(func(ctx context.Context) {
	if shared.hosts != nil && !keepsLab() {
		Expect(shared.hosts.Down(ctx, false)).To(Succeed())
	}
}, NodeTimeout(10*time.Minute))

// keepsLab reports whether the lab of the last run is used, and left running at the end.
func keepsLab() bool { return os.Getenv("E2E_KEEP") == "true" }

// releaseWithFlavors returns the folder of a copy of the newest release that has the flavors of the specs too.
func releaseWithFlavors(ctx context.Context, options lab.Options) string {
	GinkgoHelper()
	original, err := lab.New(options)
	Expect(err).NotTo(HaveOccurred())
	version, err := original.Release()
	Expect(err).NotTo(HaveOccurred())
	tools, err := original.Tools(ctx)
	Expect(err).NotTo(HaveOccurred())
	source := options.Release
	if source == "" {
		source = filepath.Join(checkout, "out", "manifests", version)
	}
	folder := filepath.Join(GinkgoT().TempDir(), version)
	Expect(os.CopyFS(folder, os.DirFS(source))).To(Succeed())
	Expect(AddFlavors(ctx, filepath.Join(tools, "kubectl"), folder)).To(Succeed())
	return folder
}

// configuration returns the configuration of Cluster API's specs.
func configuration(ctx context.Context, hosts *lab.Lab) *clusterctl.E2EConfig {
	GinkgoHelper()
	version, err := hosts.KubernetesVersion(ctx)
	Expect(err).NotTo(HaveOccurred())
	return &clusterctl.E2EConfig{
		ManagementClusterName: "lab",
		Variables:             map[string]string{"KUBERNETES_VERSION": version},
		// How long a step of a spec may take, and how often it is looked at.
		Intervals: map[string][]string{
			"default/wait-cluster":                     {"5m", "2s"},
			"default/wait-control-plane":               {"10m", "2s"},
			"default/wait-worker-nodes":                {"10m", "2s"},
			"default/wait-machine-pool-nodes":          {"5m", "2s"},
			"default/wait-delete-cluster":              {"10m", "2s"},
			"default/wait-machine-upgrade":             {"20m", "5s"},
			"default/wait-nodes-ready":                 {"10m", "5s"},
			"default/wait-machine-remediation":         {"10m", "5s"},
			"node-drain/wait-deployment-available":     {"3m", "2s"},
			"node-drain/wait-machine-deleted":          {"5m", "2s"},
			"kcp-remediation/wait-machines":            {"10m", "2s"},
			"kcp-remediation/check-machines-stable":    {"30s", "5s"},
			"kcp-remediation/wait-machine-provisioned": {"5m", "5s"},
		},
	}
}

// giveHosts grants all hosts to the namespace of a spec, and has them back when the spec is over.
func giveHosts(proxy framework.ClusterProxy, namespace string) {
	GinkgoHelper()
	c := proxy.GetClient()
	grant := &infrav1.ElementalHostGrant{}
	grant.Namespace, grant.Name = "default", namespace
	grant.Spec.Namespace, grant.Spec.Count = namespace, new(int32(len(shared.hosts.Hosts())))
	DeferCleanup(func(ctx context.Context) {
		if CurrentSpecReport().Failed() {
			fmt.Println("Collecting logs:", shared.hosts.Logs(ctx, filepath.Join(shared.artifacts, namespace)))
		}
		Expect(c.Delete(ctx, grant)).To(Succeed())
		Eventually(ctx, func(g Gomega) { expectAvailable(ctx, g, grant.Namespace) }).WithTimeout(5 * time.Minute).WithPolling(time.Second).Should(Succeed())
	})
	ctx := context.Background()
	Expect(c.Create(ctx, grant)).To(Succeed())
	Eventually(ctx, func(g Gomega) { expectAvailable(ctx, g, namespace) }).WithTimeout(time.Minute).WithPolling(time.Second).Should(Succeed())
}

// expectAvailable checks that all hosts are in a namespace, and that Machines could have them.
func expectAvailable(ctx context.Context, g Gomega, namespace string) {
	list := &infrav1.ElementalHostList{}
	g.Expect(shared.proxy.GetClient().List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	g.Expect(list.Items).To(HaveLen(len(shared.hosts.Hosts())))
	for _, host := range list.Items {
		g.Expect(meta.IsStatusConditionTrue(host.Status.Conditions, infrav1.AvailableCondition)).
			To(BeTrue(), "host %s: %+v", host.Name, host.Status.Conditions)
	}
}
