//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/go-logr/logr"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
)

// requiredHosts is the number of hosts for the largest scenario: three control planes, two
// workers, one host to replace a dead one, and one for an additional worker.
const requiredHosts = 7

var (
	hosts      *lab.Lab
	management client.Client
	timings    []timing
)

// timing is the duration of a step.
type timing struct {
	step string
	took time.Duration
}

func TestE2E(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "e2e")
}

var _ = BeforeSuite(func(ctx context.Context) {
	ctrl.SetLogger(logr.Discard())
	SetDefaultEventuallyPollingInterval(time.Second)
	options, err := lab.Options{Out: os.Stdout}.FromEnvironment(os.Getenv)
	Expect(err).NotTo(HaveOccurred())
	if options.Hosts == 0 {
		options.Hosts = requiredHosts
	}
	hosts, err = lab.New(options)
	Expect(err).NotTo(HaveOccurred())
	if !keepsLab() {
		// Clusters of a run that was killed would still use its hosts.
		step("lab: removed what a killed run left", func() { Expect(hosts.Down(ctx, false)).To(Succeed()) })
	}
	step("lab: management cluster with providers", func() { Expect(hosts.Up(ctx)).To(Succeed()) })
	step("lab: hosts enrolled", func() {
		Expect(hosts.Enrol(ctx, lab.Enrolment{Name: "lab", Hosts: hosts.Hosts()})).To(Succeed())
	})
	management = patientClient{clientFor(hosts.Kubeconfig())}
}, NodeTimeout(60*time.Minute))

var _ = AfterSuite(func(ctx context.Context) {
	fmt.Println("\nTimings")
	for _, t := range timings {
		fmt.Printf("  %8.1fs  %s\n", t.took.Seconds(), t.step)
	}
	if hosts != nil && !keepsLab() {
		Expect(hosts.Down(ctx, false)).To(Succeed())
	}
}, NodeTimeout(10*time.Minute))

// keepsLab reports whether the lab of the last run is used, and left running at the end.
func keepsLab() bool { return os.Getenv("E2E_KEEP") == "true" }

// step runs and times a function, and prints its start and end.
func step(name string, do func()) {
	GinkgoHelper()
	fmt.Printf("%s  %s\n", time.Now().Format(time.TimeOnly), name)
	start := time.Now()
	do()
	timings = append(timings, timing{name, time.Since(start)})
	fmt.Printf("%s  %s: %.1fs\n", time.Now().Format(time.TimeOnly), name, time.Since(start).Seconds())
}

func clientFor(kubeconfig string) client.Client {
	GinkgoHelper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	config.Timeout = 10 * time.Second
	// No client-side rate limit: Eventually polls several times a second.
	config.QPS = -1
	config.Dial = dialTo(config.Host)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme} {
		Expect(add(scheme)).To(Succeed())
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
}
