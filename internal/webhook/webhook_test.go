package webhook_test

import (
	"context"
	"io"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/webhook"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

// env is the API server of all tests. Each test serves its webhooks.
var env *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }, envtest.WithWebhooks()))
}

// serve serves the webhooks the way the manager does, until the test ends. The manager logs to out.
func serve(t *testing.T, out io.Writer) {
	t.Helper()
	serveWith(t, out, func(c client.Client) webhook.Reviewer { return c })
}

// serveWith is serve with what asks the API server for rights, made of the manager's client.
func serveWith(t *testing.T, out io.Writer, reviews func(client.Client) webhook.Reviewer) {
	t.Helper()
	g := NewWithT(t)
	options := env.ManagerOptions()
	options.WebhookServer = env.WebhookServer()
	options.Logger = textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(out)))
	mgr, err := ctrl.NewManager(env.Config, options)
	g.Expect(err).NotTo(HaveOccurred())
	selectors, err := selector.NewCompiler()
	g.Expect(err).NotTo(HaveOccurred())
	requests, err := audit.New(clock.RealClock{}, prometheus.NewRegistry())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(webhook.Setup(mgr, webhook.Options{
		Selectors: selectors, Surges: surges{}, Deletions: deletions{}, Recorder: mgr.GetEventRecorder("test"), Requests: requests, Reviews: reviews(mgr.GetClient()),
	})).To(Succeed())

	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("running the manager: %v", err)
		}
	})
	started := mgr.GetWebhookServer().StartedChecker()
	g.Eventually(func() error { return started(nil) }).WithTimeout(time.Minute).Should(Succeed())
	// The API server learns of the webhooks later than of other objects.
	c, wrong := env.Client(t), newMachine(env.Namespace(t), bad)
	g.Eventually(func() error { return c.Create(t.Context(), wrong.DeepCopy(), client.DryRunAll) }).WithTimeout(time.Minute).
		Should(MatchError(ContainSubstring(misspelt)))
}

func TestWebhooks(t *testing.T) {
	serve(t, io.Discard)
	t.Run("template is immutable", testTemplateIsImmutable)
	t.Run("remediation template is immutable", testRemediationTemplateIsImmutable)
	t.Run("template in a dry run of the topology", testTopologyDryRun)
	t.Run("deleted template", testDeletedTemplate)
	t.Run("name pattern", testNamePattern)
	t.Run("expression of a machine", testMachineExpression)
	t.Run("expression of a deleted machine", testDeletedMachine)
	t.Run("machine that is refused", testRefusedMachine)
	t.Run("deletion that is refused", testRefusedDeletion)
	t.Run("expression of a template", testTemplateExpression)
	t.Run("status of a template", testTemplateStatus)
	t.Run("recipients of snapshots", testRecipients)
	t.Run("deleted registration", testDeletedRegistration)
}

func newTemplate(namespace string) *infrav1.ElementalMachineTemplate {
	return &infrav1.ElementalMachineTemplate{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: namespace},
		Spec: infrav1.ElementalMachineTemplateSpec{Template: infrav1.ElementalMachineTemplateResource{
			Spec: &infrav1.ElementalMachineSpec{HostSelector: &infrav1.HostSelector{MatchLabels: map[string]string{"a": "b"}}},
		}},
	}
}

func testTemplateIsImmutable(t *testing.T) {
	g := NewWithT(t)
	c := env.Client(t)
	template := newTemplate(env.Namespace(t))
	g.Expect(c.Create(t.Context(), template)).To(Succeed())

	template.Labels = map[string]string{"metadata": "may-change"}
	g.Expect(c.Update(t.Context(), template)).To(Succeed())

	template.Spec.Template.Spec.HostSelector.MatchLabels["a"] = "c"
	g.Expect(c.Update(t.Context(), template)).To(MatchError(ContainSubstring("a template is immutable; create another")))
}

func testRemediationTemplateIsImmutable(t *testing.T) {
	g := NewWithT(t)
	c := env.Client(t)
	template := &infrav1.ElementalRemediationTemplate{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: env.Namespace(t), Finalizers: []string{"test/hold"}},
		Spec: infrav1.ElementalRemediationTemplateSpec{Template: infrav1.ElementalRemediationTemplateResource{
			Spec: &infrav1.ElementalRemediationSpec{Reboots: new(int32(1))},
		}},
	}
	g.Expect(c.Create(t.Context(), template)).To(Succeed())
	template.Labels = map[string]string{"metadata": "may-change"}
	g.Expect(c.Update(t.Context(), template)).To(Succeed())

	changed := template.DeepCopy()
	changed.Spec.Template.Spec.Reboots = new(int32(2))
	g.Expect(c.Update(t.Context(), changed)).To(MatchError(ContainSubstring("a template is immutable; create another")))
	g.Expect(c.Delete(t.Context(), template)).To(Succeed())
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(template), template)).To(Succeed())
	template.Finalizers, template.Spec.Template.Spec.Reboots = nil, new(int32(2))
	g.Expect(c.Update(t.Context(), template)).To(Succeed(), "what is being deleted")
}

func testTopologyDryRun(t *testing.T) {
	g := NewWithT(t)
	c := env.Client(t)
	template := newTemplate(env.Namespace(t))
	g.Expect(c.Create(t.Context(), template)).To(Succeed())

	template.Spec.Template.Spec.HostSelector.MatchLabels["a"] = "c"
	g.Expect(c.Update(t.Context(), template.DeepCopy(), client.DryRunAll)).NotTo(Succeed(), "somebody else's dry run")
	template.Annotations = map[string]string{clusterv1.TopologyDryRunAnnotation: ""}
	g.Expect(c.Update(t.Context(), template.DeepCopy(), client.DryRunAll)).To(Succeed())
	g.Expect(c.Update(t.Context(), template)).NotTo(Succeed(), "with the annotation alone")
}

func testDeletedTemplate(t *testing.T) {
	g := NewWithT(t)
	c := env.Client(t)
	template := newTemplate(env.Namespace(t))
	template.Finalizers = []string{"test/hold"}
	g.Expect(c.Create(t.Context(), template)).To(Succeed())
	g.Expect(c.Delete(t.Context(), template)).To(Succeed())
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(template), template)).To(Succeed())

	template.Finalizers = nil
	template.Spec.Template.Spec.HostSelector.MatchLabels["a"] = "c"
	g.Expect(c.Update(t.Context(), template)).To(Succeed())
}

func newRegistration(namespace, pattern string) *infrav1.ElementalRegistration {
	return &infrav1.ElementalRegistration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: namespace},
		Spec:       infrav1.ElementalRegistrationSpec{HostTemplate: infrav1.HostTemplate{NamePattern: pattern}},
	}
}

func testNamePattern(t *testing.T) {
	g := NewWithT(t)
	c, namespace := env.Client(t), env.Namespace(t)
	for pattern, message := range map[string]string{
		"edge-{{ .HostID":        "spec.hostTemplate.namePattern: Invalid value: \"edge-{{ .HostID\": parsing the pattern",
		"{{ .Serial }}":          "can't evaluate field Serial",
		"{{ range 5 }}{{ end }}": "may not use range",
	} {
		g.Expect(c.Create(t.Context(), newRegistration(namespace, pattern))).To(MatchError(ContainSubstring(message)))
	}
	registration := newRegistration(namespace, "edge-{{ .Inventory.SMBIOS.SerialNumber }}")
	g.Expect(c.Create(t.Context(), registration)).To(Succeed())
	g.Expect(c.Create(t.Context(), newRegistration(namespace, ""))).To(Succeed(), "without a pattern")

	registration.Spec.HostTemplate.NamePattern = "{{"
	g.Expect(c.Update(t.Context(), registration)).To(MatchError(ContainSubstring("parsing the pattern")))
}

func testDeletedRegistration(t *testing.T) {
	g := NewWithT(t)
	c := env.Client(t)
	registration := newRegistration(env.Namespace(t), "edge")
	registration.Finalizers = []string{"test/hold"}
	g.Expect(c.Create(t.Context(), registration)).To(Succeed())
	g.Expect(c.Delete(t.Context(), registration)).To(Succeed())
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(registration), registration)).To(Succeed())

	registration.Finalizers = nil
	registration.Spec.HostTemplate.NamePattern = "{{"
	g.Expect(c.Update(t.Context(), registration)).To(Succeed())
}
