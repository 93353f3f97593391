package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/util/flags"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/access"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/certificates"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/etcdrestore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/grant"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/machine"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/remediation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/template"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace/controlplane"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace/replacement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
	elementalwebhook "github.com/capi-elemental/cluster-api-provider-elemental/internal/webhook"
)

// Permissions for objects without a namespace. The markers of other packages are for objects
// in namespaces: their role may be bound in the watched namespace only.
//
// The cluster controller reads the labels of kinds of control planes.
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// Metrics are served to callers who may read them, and users of workload clusters are those of
// the management cluster.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// The API server publishes there the CA of client certificates. clusterctl would put a Role for
// the namespace kube-system into the provider's.
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=extension-apiserver-authentication,verbs=get;list;watch

// shutdownTimeout is shorter than the Pod's termination grace period.
const shutdownTimeout = 8 * time.Second

// templateConcurrency suffices, because templates are reconciled every few seconds at most.
const templateConcurrency = 2

// grantConcurrency is 1: grants that overlap would only conflict.
const grantConcurrency = 1

// restoreConcurrency suffices, because restores are rare.
const restoreConcurrency = 2

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, ipamv1.AddToScheme,
		bootstrapv1.AddToScheme, controlplanev1.AddToScheme, runtimev1.AddToScheme, infrav1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building scheme: %w", err)
		}
	}
	return scheme, nil
}

func newManager(ctx context.Context, o *options) (ctrl.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the management cluster: %w", err)
	}
	config.QPS, config.Burst = o.qps, o.burst
	config.UserAgent = "cluster-api-provider-elemental/" + version
	if err := refuseForeignCRDs(ctx, config, scheme); err != nil {
		return nil, err
	}
	tlsOptions, metrics, err := flags.GetManagerOptions(o.manager)
	if err != nil {
		return nil, fmt.Errorf("checking flags: %w", err)
	}
	if o.contention {
		goruntime.SetBlockProfileRate(1)
	}
	cacheOptions, err := cacheOptions(o)
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:           scheme,
		MapperProvider:   newMapper,
		Cache:            cacheOptions,
		LeaderElection:   o.leaderElection.enabled,
		LeaderElectionID: "elemental-manager-leader-election",
		// Empty outside of a Pod, where leader election is not used.
		LeaderElectionNamespace: os.Getenv("POD_NAMESPACE"),
		LeaseDuration:           &o.leaderElection.lease,
		RenewDeadline:           &o.leaderElection.renewDeadline,
		RetryPeriod:             &o.leaderElection.retryInterval,
		// A leader that stops releases its lease, so the next one need not wait. Its last
		// reconciles may overlap with the next leader's, which is harmless, as every
		// claim is an optimistically locked write. The shutdown is bounded, because
		// controller-runtime's queues can block during it.
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       &o.shutdown,
		HealthProbeBindAddress:        o.healthAddr,
		PprofBindAddress:              o.profiler,
		Metrics:                       *metrics,
		WebhookServer: webhook.NewServer(webhook.Options{
			Port: o.webhook.port, CertDir: o.webhook.certDir, CertName: o.webhook.certName, KeyName: o.webhook.keyName, TLSOpts: tlsOptions,
		}),
	})
	if err != nil {
		return nil, fmt.Errorf("making manager: %w", err)
	}
	selectors, err := selector.NewCompiler()
	if err != nil {
		return nil, fmt.Errorf("making the compiler of host selectors: %w", err)
	}
	if err := index.Register(ctx, mgr.GetFieldIndexer()); err != nil {
		return nil, err
	}
	ca := authority.New(mgr.GetAPIReader(), mgr.GetClient(), managerNamespace(), clock.RealClock{})
	agents, err := setupAgentAPI(ctx, mgr, ca, o)
	if err != nil {
		return nil, err
	}
	workloads, err := setupGateway(ctx, mgr, agents, ca, tlsOptions, o)
	if err != nil {
		return nil, err
	}
	if err := setupAccess(ctx, mgr, workloads, o); err != nil {
		return nil, err
	}
	if err := setupReconcilers(ctx, mgr, selectors, agents, o); err != nil {
		return nil, err
	}
	if err := setupInPlace(ctx, mgr, selectors, o); err != nil {
		return nil, err
	}
	if err := setupFleetMetrics(ctx, mgr, o); err != nil {
		return nil, err
	}
	return mgr, setupWebhooks(mgr, selectors, agents, o)
}

// cacheOptions limits the cache to what is used: of Secrets only registration tokens, of
// Services only the names of endpoints, and no managed fields.
func cacheOptions(o *options) (cache.Options, error) {
	tokens, err := labels.NewRequirement(infrav1.RegistrationLabel, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, fmt.Errorf("selecting token Secrets: %w", err)
	}
	names, err := labels.NewRequirement(infrav1.EndpointServiceLabel, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, fmt.Errorf("selecting Services: %w", err)
	}
	options := cache.Options{
		SyncPeriod:       &o.syncPeriod,
		DefaultTransform: trim,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}:  {Label: labels.NewSelector().Add(*tokens)},
			&corev1.Service{}: {Label: labels.NewSelector().Add(*names)},
		},
	}
	if o.namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{o.namespace: {}}
	}
	return options, nil
}

// setupReconcilers adds all reconcilers except those of the agent API, which is agents.
func setupReconcilers(ctx context.Context, mgr ctrl.Manager, selectors *selector.Compiler, agents *server.Server, o *options) error {
	moves, err := cluster.NewMetrics(metrics.Registry)
	if err != nil {
		return fmt.Errorf("setting up ElementalCluster: %w", err)
	}
	images, err := o.kubeVIP.policy()
	if err != nil {
		return err
	}
	nominations := &placement.Nominations{}
	if err := (&cluster.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Recorder: newRecorder(mgr, "elementalcluster"),
		Clock: clock.RealClock{}, Metrics: moves, Selectors: selectors, Nominations: nominations, Contacts: agents, Images: images,
		Tunnels: o.gateway.settings(managerNamespace()), WatchFilter: o.watchFilter,
	}).SetupWithManager(ctx, mgr, concurrent(o.concurrency.cluster)); err != nil {
		return fmt.Errorf("setting up ElementalCluster: %w", err)
	}
	if err := setupSnapshotUploads(ctx, mgr, o); err != nil {
		return err
	}
	if err := (&certificates.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Recorder: newRecorder(mgr, "elementalcluster-certificates"),
		Clock: clock.RealClock{}, WatchFilter: o.watchFilter,
	}).SetupWithManager(ctx, mgr, concurrent(o.concurrency.cluster)); err != nil {
		return fmt.Errorf("setting up the watch of certificates: %w", err)
	}
	if err := (&machine.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Recorder: newRecorder(mgr, "elementalmachine"),
		Clock: clock.RealClock{}, Selectors: selectors, Nominations: nominations, WatchFilter: o.watchFilter,
	}).SetupWithManager(ctx, mgr, concurrent(o.concurrency.machine)); err != nil {
		return fmt.Errorf("setting up ElementalMachine: %w", err)
	}
	if err := (&template.Reconciler{
		Client: mgr.GetClient(), Clock: clock.RealClock{}, Selectors: selectors, WatchFilter: o.watchFilter,
	}).SetupWithManager(ctx, mgr, concurrent(templateConcurrency)); err != nil {
		return fmt.Errorf("setting up ElementalMachineTemplate: %w", err)
	}
	if err := (&host.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Recorder: newRecorder(mgr, "elementalhost"),
		Clock: clock.RealClock{}, WatchFilter: o.watchFilter,
	}).SetupWithManager(ctx, mgr, concurrent(o.concurrency.host)); err != nil {
		return fmt.Errorf("setting up ElementalHost: %w", err)
	}
	if err := (&grant.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Recorder: newRecorder(mgr, "elementalhostgrant"),
		Clock: clock.RealClock{}, Namespace: o.namespace, WatchFilter: o.watchFilter,
	}).SetupWithManager(ctx, mgr, concurrent(grantConcurrency)); err != nil {
		return fmt.Errorf("setting up ElementalHostGrant: %w", err)
	}
	outcomes, err := remediation.NewMetrics(metrics.Registry)
	if err != nil {
		return fmt.Errorf("setting up ElementalRemediation: %w", err)
	}
	if err := (&remediation.Reconciler{
		Client: mgr.GetClient(), Recorder: newRecorder(mgr, "elementalremediation"),
		Clock: clock.RealClock{}, Metrics: outcomes, WatchFilter: o.watchFilter,
	}).SetupWithManager(ctx, mgr, concurrent(o.concurrency.remediation)); err != nil {
		return fmt.Errorf("setting up ElementalRemediation: %w", err)
	}
	if err := (&etcdrestore.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Recorder: newRecorder(mgr, "elementaletcdrestore"),
		Clock: clock.RealClock{}, DisconnectGrace: o.agentAPI.disconnectGrace, WatchFilter: o.watchFilter,
	}).SetupWithManager(ctx, mgr, concurrent(restoreConcurrency)); err != nil {
		return fmt.Errorf("setting up ElementalEtcdRestore: %w", err)
	}
	return nil
}

// setupAccess adds the reconciler of access to workload clusters.
func setupAccess(ctx context.Context, mgr ctrl.Manager, workloads access.Workloads, o *options) error {
	if err := (&access.Reconciler{
		Client: mgr.GetClient(), Recorder: newRecorder(mgr, "elementalcluster-access"),
		Clock: clock.RealClock{}, Workloads: workloads, WatchFilter: o.watchFilter,
	}).SetupWithManager(ctx, mgr, concurrent(o.concurrency.cluster)); err != nil {
		return fmt.Errorf("setting up access to workload clusters: %w", err)
	}
	return nil
}

// setupFleetMetrics adds the metrics of hosts and machines.
func setupFleetMetrics(ctx context.Context, mgr ctrl.Manager, o *options) error {
	if err := fleet.Register(ctx, fleet.Options{
		Reader: mgr.GetClient(), Informers: mgr.GetCache(), Elected: mgr.Elected(),
		Clock: clock.RealClock{}, WatchFilter: o.watchFilter, Metrics: metrics.Registry,
	}); err != nil {
		return fmt.Errorf("setting up the metrics of the fleet: %w", err)
	}
	return nil
}

func concurrent(n int) controller.Options { return controller.Options{MaxConcurrentReconciles: n} }

func setupWebhooks(mgr ctrl.Manager, selectors *selector.Compiler, requests elementalwebhook.RequestLog, o *options) error {
	if o.webhook.port == 0 {
		return nil
	}
	surges := controlplane.Reader{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Selectors: selectors, Namespace: o.namespace}
	if err := elementalwebhook.Setup(mgr, elementalwebhook.Options{
		Selectors: selectors, Surges: surges, Deletions: replacement.New(mgr.GetAPIReader(), o.namespace),
		Recorder: newRecorder(mgr, "machine-deletion"), Requests: requests, Reviews: mgr.GetClient(),
	}); err != nil {
		return fmt.Errorf("setting up webhooks: %w", err)
	}
	if err := elementalwebhook.RegisterMetrics(filepath.Join(o.webhook.certDir, o.webhook.certName), metrics.Registry); err != nil {
		return err
	}
	started := mgr.GetWebhookServer().StartedChecker()
	if err := mgr.AddReadyzCheck("webhook", started); err != nil {
		return fmt.Errorf("adding ready check: %w", err)
	}
	if err := mgr.AddHealthzCheck("webhook", started); err != nil {
		return fmt.Errorf("adding health check: %w", err)
	}
	return nil
}

// refuseForeignCRDs returns an error if another provider with the same group and kinds is or
// was installed, because its objects would be taken for objects of this provider.
func refuseForeignCRDs(ctx context.Context, config *rest.Config, scheme *runtime.Scheme) error {
	reader, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connecting to the management cluster: %w", err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	const name = "elementalhosts.infrastructure.cluster.x-k8s.io"
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("CustomResourceDefinition %s is not there: install this provider with clusterctl init", name)
		}
		return fmt.Errorf("reading CustomResourceDefinition %s: %w", name, err)
	}
	foreign := func(v string) bool { return v != infrav1.GroupVersion.Version }
	if slices.ContainsFunc(crd.Status.StoredVersions, foreign) {
		return fmt.Errorf("CustomResourceDefinition %s has stored versions %v: another provider of the same kinds is or was installed here; "+
			"delete its objects and CRDs first", name, crd.Status.StoredVersions)
	}
	return nil
}
