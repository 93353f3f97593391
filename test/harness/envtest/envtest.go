package envtest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	crenvtest "sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// startTimeout bounds the start of each program, also on a busy machine.
	startTimeout = 2 * time.Minute
	// stopTimeout bounds the end of each.
	stopTimeout = time.Minute
)

// Environment is a running control plane.
type Environment struct {
	// Config is a client configuration of an administrator, without rate limit.
	Config *rest.Config
	// Scheme knows Kubernetes, Cluster API, kubeadm's providers and this one.
	Scheme *runtime.Scheme
	// Authority is that of WithAuthority; otherwise nil.
	Authority *Authority

	controlPlane *crenvtest.Environment
	http         *http.Client
	mapper       meta.RESTMapper
}

// Option changes what is started.
type Option func(*options)

type options struct {
	webhooks, authority, bare bool
	// flags of the API server.
	flags map[string]string
}

// WithFlag gives the API server a flag.
func WithFlag(name, value string) Option {
	return func(o *options) {
		if o.flags == nil {
			o.flags = map[string]string{}
		}
		o.flags[name] = value
	}
}

// Bare installs no CustomResourceDefinitions, as in a new workload cluster.
func Bare() Option { return func(o *options) { o.bare = true } }

// WithWebhooks registers the webhook configurations of config/webhook. Until a manager
// serves them, the API server rejects their objects.
func WithWebhooks() Option {
	return func(o *options) { o.webhooks = true }
}

// Start starts a control plane that is stopped at the end of tb.
func Start(tb testing.TB, opts ...Option) *Environment {
	tb.Helper()
	env, err := start(opts...)
	if err != nil {
		tb.Fatalf("starting the test control plane: %v", err)
	}
	tb.Cleanup(func() {
		if err := env.stop(); err != nil {
			tb.Errorf("stopping the test control plane: %v", err)
		}
	})
	return env
}

// Main starts a control plane, hands it to use, runs the tests of a package,
// stops the control plane and returns the exit code for TestMain.
func Main(m *testing.M, use func(*Environment), opts ...Option) int {
	env, err := start(opts...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the test control plane:", err)
		return 1
	}
	use(env)
	code := m.Run()
	if err := env.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the test control plane:", err)
		return max(code, 1)
	}
	return code
}

// ClientOptions returns options for an administrator's clients. The clients share one
// REST mapper and HTTP client.
func (e *Environment) ClientOptions() client.Options {
	return client.Options{Scheme: e.Scheme, HTTPClient: e.http, Mapper: e.mapper}
}

// Client returns a client of the administrator that reads from the API server,
// not from a cache.
func (e *Environment) Client(tb testing.TB) client.Client {
	tb.Helper()
	c, err := client.New(e.Config, e.ClientOptions())
	if err != nil {
		tb.Fatalf("making a client: %v", err)
	}
	return c
}

// Namespace makes a namespace for one test and returns its name.
func (e *Environment) Namespace(tb testing.TB) string {
	tb.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := e.Client(tb).Create(context.Background(), ns); err != nil {
		tb.Fatalf("creating a namespace: %v", err)
	}
	return ns.Name
}

// AddUser returns a client configuration of a user in the given groups. The user has no
// rights without RBAC objects.
func (e *Environment) AddUser(tb testing.TB, name string, groups ...string) *rest.Config {
	tb.Helper()
	user, err := e.controlPlane.AddUser(crenvtest.User{Name: name, Groups: groups}, rest.CopyConfig(e.Config))
	if err != nil {
		tb.Fatalf("adding user %s: %v", name, err)
	}
	return user.Config()
}

// WebhookServer returns a server at the address that the registered webhook
// configurations name, for ctrl.Options.WebhookServer.
func (e *Environment) WebhookServer() webhook.Server {
	o := e.controlPlane.WebhookInstallOptions
	return webhook.NewServer(webhook.Options{Host: o.LocalServingHost, Port: o.LocalServingPort, CertDir: o.LocalServingCertDir})
}

func start(opts ...Option) (*Environment, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	ctx := context.Background()
	dirs, err := findModules(ctx)
	if err != nil {
		return nil, err
	}
	assets, err := findPrograms(ctx, dirs.provider)
	if err != nil {
		return nil, err
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	if !o.bare {
		if crds, err = readCRDs(dirs.crdFolders()); err != nil {
			return nil, err
		}
	}
	env := &Environment{Scheme: newScheme(), controlPlane: &crenvtest.Environment{
		BinaryAssetsDirectory:    assets,
		CRDs:                     crds,
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: startTimeout,
		ControlPlaneStopTimeout:  stopTimeout,
		CRDInstallOptions:        crenvtest.CRDInstallOptions{MaxTime: startTimeout},
	}}
	if o.webhooks {
		env.controlPlane.WebhookInstallOptions.Paths = []string{filepath.Join(dirs.provider, "config", "webhook", "manifests.yaml")}
	}
	if o.authority {
		if env.Authority, err = newAuthority(); err != nil {
			return nil, err
		}
		env.controlPlane.ControlPlane.GetAPIServer().Authn = env.Authority
	}
	for name, value := range o.flags {
		env.controlPlane.ControlPlane.GetAPIServer().Configure().Set(name, value)
	}
	config, err := env.controlPlane.Start()
	if err != nil {
		_ = env.controlPlane.Stop()
		return nil, fmt.Errorf("starting etcd and kube-apiserver: %w", err)
	}
	config.QPS = -1
	env.Config = config
	if err := env.share(); err != nil {
		_ = env.controlPlane.Stop()
		return nil, err
	}
	return env, nil
}

// share creates what all clients of the administrator share.
func (e *Environment) share() error {
	var err error
	if e.http, err = rest.HTTPClientFor(e.Config); err != nil {
		return fmt.Errorf("making an HTTP client: %w", err)
	}
	if e.mapper, err = apiutil.NewDynamicRESTMapper(e.Config, e.http); err != nil {
		return fmt.Errorf("making a REST mapper: %w", err)
	}
	return nil
}

func (e *Environment) stop() error {
	if err := e.controlPlane.Stop(); err != nil {
		return fmt.Errorf("stopping etcd and kube-apiserver: %w", err)
	}
	return nil
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		clusterv1.AddToScheme, ipamv1.AddToScheme, bootstrapv1.AddToScheme, controlplanev1.AddToScheme,
		infrav1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}
