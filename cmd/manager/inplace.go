package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/upgrade"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace/extension"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace/hooks"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// Cluster API finds the hooks for updates in place by an ExtensionConfig.
// +kubebuilder:rbac:groups=runtime.cluster.x-k8s.io,resources=extensionconfigs,verbs=get;create;patch;delete

// webhookService is the name of the Service of the webhook server, and webhookSecret that of
// the Secret of its certificate, both in the manager's namespace.
const (
	webhookService = "elemental-webhook-service"
	webhookSecret  = "elemental-webhook-service-cert"
)

type inPlaceOptions struct {
	enabled bool
	url     string
	caFile  string
}

func (o *inPlaceOptions) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.enabled, "in-place-updates", false, "Offer Cluster API to upgrade Kubernetes in place: keep the ExtensionConfig of the provider's hooks, and remove it when this is false. Needs Cluster API's feature gates RuntimeSDK and InPlaceUpdates.")
	fs.StringVar(&o.url, "in-place-updates-url", "", "URL at which Cluster API reaches the webhook server, https://host[:port], for a manager outside of the management cluster; the Service of the webhooks when blank.")
	fs.StringVar(&o.caFile, "in-place-updates-ca-file", "", "File with the CA of the webhook server's certificate, in PEM; only with --in-place-updates-url.")
}

func (o *inPlaceOptions) validate(webhookPort int) error {
	switch {
	case o.enabled && webhookPort == 0:
		return errors.New("--in-place-updates needs the webhook server: --webhook-port must not be 0")
	case o.url != "" && !isServerURL(o.url):
		return fmt.Errorf("--in-place-updates-url must be https://host[:port], not %q", o.url)
	case (o.url == "") != (o.caFile == ""):
		return errors.New("--in-place-updates-url and --in-place-updates-ca-file belong together")
	default:
		return nil
	}
}

// setupInPlace adds the upgrades of Kubernetes in place: the reconciler, the hooks, and what
// keeps their ExtensionConfig.
func setupInPlace(ctx context.Context, mgr ctrl.Manager, selectors *selector.Compiler, o *options) error {
	upgrades := &upgrade.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Recorder: newRecorder(mgr, "elementalmachine-upgrade"),
		Clock: clock.RealClock{}, Selectors: selectors, WatchFilter: o.watchFilter,
	}
	if err := upgrades.SetupWithManager(ctx, mgr, concurrent(o.concurrency.machine)); err != nil {
		return fmt.Errorf("setting up upgrades in place: %w", err)
	}
	if err := upgrades.RegisterMetrics(metrics.Registry, mgr.Elected()); err != nil {
		return fmt.Errorf("setting up upgrades in place: %w", err)
	}
	if o.webhook.port != 0 {
		// The hooks of all replicas read releases, the reconcilers only those of the leader.
		if _, err := mgr.GetCache().GetInformer(ctx, &infrav1.ElementalKubernetesRelease{}); err != nil {
			return fmt.Errorf("watching ElementalKubernetesReleases: %w", err)
		}
		hooks.Register(mgr.GetWebhookServer(), hooks.Options{Client: mgr.GetClient(), Selectors: selectors})
	}
	extensionOptions := extension.Options{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Clock: clock.RealClock{}, Enabled: o.inPlace.enabled,
		Service: types.NamespacedName{Namespace: managerNamespace(), Name: webhookService},
		Secret:  types.NamespacedName{Namespace: managerNamespace(), Name: webhookSecret},
		URL:     o.inPlace.url, Namespace: o.namespace,
	}
	if o.inPlace.caFile != "" {
		ca, err := os.ReadFile(o.inPlace.caFile)
		if err != nil {
			return fmt.Errorf("reading --in-place-updates-ca-file: %w", err)
		}
		extensionOptions.CABundle = ca
	}
	if err := mgr.Add(extension.New(extensionOptions)); err != nil {
		return fmt.Errorf("setting up the ExtensionConfig: %w", err)
	}
	return nil
}
