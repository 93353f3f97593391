package conversion_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crenvtest "sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

const (
	patience = time.Minute
	crdName  = "elementalhosts.infrastructure.cluster.x-k8s.io"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// TestPolicy follows a fleet through the steps of the policy.
func TestPolicy(t *testing.T) {
	r := newRig(t)
	r.serve()
	before := r.createHost("read")
	r.upgrade(bothServed())
	t.Run("stored before the upgrade", func(t *testing.T) { testStoredBefore(r.in(t), before) })
	t.Run("rights", func(t *testing.T) { testRights(r.in(t)) })
	t.Run("both served", func(t *testing.T) { testBothServed(r.within(t)) })
	t.Run("newer stored", func(t *testing.T) { testNewerStored(r.within(t)) })
}

// rig is an API server with the CRDs as they are generated, and a webhook that converts hosts.
type rig struct {
	*WithT
	t         *testing.T
	env       *envtest.Environment
	client    client.Client
	rest      rest.Interface
	namespace string
	hook      *hook
	// crd is the CRD of hosts before the upgrade.
	crd *apiextensionsv1.CustomResourceDefinition
}

func newRig(t *testing.T) *rig {
	t.Helper()
	// Only one of the CRDs is needed, and every start pays for all.
	env := envtest.Start(t, envtest.Bare(), envtest.WithWebhooks())
	addNewer(env.Scheme)
	clients, err := kubernetes.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	r := (&rig{env: env, rest: clients.RESTClient(), client: env.Client(t), namespace: env.Namespace(t), crd: &apiextensionsv1.CustomResourceDefinition{}}).in(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "crd", "bases", "infrastructure.cluster.x-k8s.io_elementalhosts.yaml"))
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(yaml.UnmarshalStrict(text, r.crd)).To(Succeed())
	r.Expect(r.client.Create(t.Context(), r.crd.DeepCopy())).To(Succeed())
	r.Eventually(func() error { return r.client.List(t.Context(), &infrav1.ElementalHostList{}) }).Should(Succeed())
	r.hook = newHook(t, env.Scheme)
	r.hook.start()
	return r
}

// within is the rig in a subtest that has a namespace of its own.
func (r *rig) within(t *testing.T) *rig {
	t.Helper()
	copied := r.in(t)
	copied.namespace = r.env.Namespace(t)
	return copied
}

// in is the rig in a subtest.
func (r *rig) in(t *testing.T) *rig {
	t.Helper()
	copied := *r
	copied.t, copied.WithT = t, NewWithT(t)
	copied.SetDefaultEventuallyTimeout(patience)
	return &copied
}

// get reads a host.
func (r *rig) get(to client.Object, name string) {
	r.t.Helper()
	r.Expect(r.client.Get(r.t.Context(), r.key(name), to)).To(Succeed())
}

func (r *rig) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: r.namespace, Name: name}
}

// live is the CRD as the API server has it.
func (r *rig) live() *apiextensionsv1.CustomResourceDefinition {
	r.t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	r.Expect(r.client.Get(r.t.Context(), client.ObjectKey{Name: crdName}, crd)).To(Succeed())
	return crd
}

func (r *rig) old(name string) *infrav1.ElementalHost {
	r.t.Helper()
	host := &infrav1.ElementalHost{}
	r.get(host, name)
	return host
}

func (r *rig) new(name string) *ElementalHost {
	r.t.Helper()
	host := &ElementalHost{}
	r.get(host, name)
	return host
}

// patch changes a host by a merge patch with an optimistic lock, as all code of the provider does.
func patch[O client.Object](r *rig, host O, change func()) {
	r.t.Helper()
	before := host.DeepCopyObject().(O)
	change()
	r.Expect(r.client.Patch(r.t.Context(), host, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))).To(Succeed())
}

// version is how a CRD has one of its versions.
type version struct{ served, stored bool }

// apply applies a CRD, as an upgrade or a downgrade does.
func (r *rig) apply(versions map[string]version) error {
	spec := r.crd.Spec.DeepCopy()
	newVersion := spec.Versions[0].DeepCopy()
	newVersion.Name = newer
	hostSpec := newVersion.Schema.OpenAPIV3Schema.Properties["spec"]
	item := hostSpec.Properties["reboot"]
	item.Properties["reason"] = apiextensionsv1.JSONSchemaProps{Type: "string", MaxLength: new(int64(253))}
	delete(hostSpec.Properties, "reboot")
	hostSpec.Properties["reboots"] = apiextensionsv1.JSONSchemaProps{
		Type: "array", MaxItems: new(int64(4)), Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &item},
		XListType: new("map"), XListMapKeys: []string{"id"},
	}
	spec.Versions = slices.DeleteFunc(append(spec.Versions, *newVersion), func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		_, ok := versions[v.Name]
		return !ok
	})
	column := apiextensionsv1.CustomResourceColumnDefinition{Name: "Applied-" + rand.String(8), Type: "string", JSONPath: ".metadata.name"}
	for i := range spec.Versions {
		v := &spec.Versions[i]
		v.Served, v.Storage = versions[v.Name].served, versions[v.Name].stored
		v.AdditionalPrinterColumns = append(v.AdditionalPrinterColumns, column)
	}
	if _, ok := versions[newer]; ok {
		spec.Conversion = r.hook.conversion()
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := r.client.Get(r.t.Context(), client.ObjectKey{Name: crdName}, crd); err != nil {
			return err
		}
		crd.Spec = *spec
		return r.client.Update(r.t.Context(), crd)
	})
}

// The CRDs of the policy, one for each step.
func beforeUpgrade() map[string]version { return map[string]version{older: {true, true}} }
func bothServed() map[string]version {
	return map[string]version{older: {true, true}, newer: {true, false}}
}

func newerStored() map[string]version {
	return map[string]version{older: {true, false}, newer: {true, true}}
}

func olderUnserved() map[string]version {
	return map[string]version{older: {false, false}, newer: {true, true}}
}
func newerOnly() map[string]version { return map[string]version{newer: {true, true}} }

// upgrade applies a CRD and waits until the API server serves its versions and no other. The API
// server replaces its handlers some time after it has answered, so each CRD has a column of its own,
// which the new handlers show.
func (r *rig) upgrade(versions map[string]version) {
	r.t.Helper()
	r.Expect(r.apply(versions)).To(Succeed())
	column := columnOf(r.live())
	for _, name := range []string{older, newer} {
		r.Eventually(func() error {
			table, err := r.rest.Get().AbsPath("/apis", newerGroupVersion.Group, name, "namespaces", r.namespace, "elementalhosts").
				SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(r.t.Context())
			switch {
			case !versions[name].served && apierrors.IsNotFound(err):
				return nil
			case versions[name].served && err == nil && strings.Contains(string(table), column):
				return nil
			}
			return fmt.Errorf("%s is to be served: %v, and listing says: %w", name, versions[name].served, err)
		}).Should(Succeed())
	}
}

// columnOf is the name of the column that tells one CRD from another.
func columnOf(crd *apiextensionsv1.CustomResourceDefinition) string {
	columns := crd.Spec.Versions[0].AdditionalPrinterColumns
	return columns[len(columns)-1].Name
}

// hook converts hosts, in a server that can be stopped and started again at its address.
type hook struct {
	t       *testing.T
	options crenvtest.WebhookInstallOptions
	convert http.Handler
	calls   atomic.Int64
	stop    func()
}

func newHook(t *testing.T, scheme *runtime.Scheme) *hook {
	t.Helper()
	g, h := NewWithT(t), &hook{t: t, stop: func() {}}
	g.Expect(h.options.PrepWithoutInstalling()).To(Succeed())
	t.Cleanup(func() {
		h.stop()
		g.Expect(h.options.Cleanup()).To(Succeed())
	})
	converter, err := conversion.NewHubSpokeConverter(&ElementalHost{},
		conversion.NewSpokeConverter(&infrav1.ElementalHost{}, convertToOlder, convertToNewer))(scheme)
	g.Expect(err).NotTo(HaveOccurred())
	registry := conversion.NewRegistry()
	g.Expect(registry.RegisterConverter(schema.GroupKind{Group: newerGroupVersion.Group, Kind: "ElementalHost"}, converter)).To(Succeed())
	convert := conversion.NewWebhookHandler(scheme, registry)
	h.convert = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h.calls.Add(1)
		convert.ServeHTTP(w, req)
	})
	return h
}

// conversion is that of a CRD whose hosts the server converts.
func (h *hook) conversion() *apiextensionsv1.CustomResourceConversion {
	url := "https://" + net.JoinHostPort(h.options.LocalServingHost, strconv.Itoa(h.options.LocalServingPort)) + "/convert"
	return &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
		ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: h.options.LocalServingCAData},
		ConversionReviewVersions: []string{"v1"},
	}}
}

func (h *hook) start() {
	h.t.Helper()
	g := NewWithT(h.t)
	server := webhook.NewServer(webhook.Options{
		Host: h.options.LocalServingHost, Port: h.options.LocalServingPort, CertDir: h.options.LocalServingCertDir,
	})
	server.Register("/convert", h.convert)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	h.stop = func() {
		cancel()
		g.Expect(<-ended).To(Succeed())
		h.stop = func() {}
	}
	g.Eventually(func() error { return server.StartedChecker()(nil) }).WithTimeout(patience).Should(Succeed())
}
