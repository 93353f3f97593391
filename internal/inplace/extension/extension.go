package extension

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// Name of the ExtensionConfig.
	Name = "elemental-in-place"
	// provider is the value of the label cluster.x-k8s.io/provider of this provider's objects.
	provider = "infrastructure-elemental"

	// checkInterval is how often the ExtensionConfig is looked at; somebody may change it.
	checkInterval = 5 * time.Minute
	// retryInterval is the interval after an error. Cluster API may not be ready yet.
	retryInterval = 10 * time.Second
)

// Options say whether there is to be an ExtensionConfig, and where the hooks are.
type Options struct {
	// Client writes. Reader reads past the cache.
	Client client.Client
	Reader client.Reader
	Clock  clock.Clock
	// Enabled: there is to be an ExtensionConfig; otherwise it is removed.
	Enabled bool
	// Service is that of the webhook server, and Secret has its CA.
	Service, Secret types.NamespacedName
	// URL of the webhook server, which CABundle verifies, instead of the Service; for a
	// manager outside of the cluster.
	URL      string
	CABundle []byte
	// Namespace is the only one that the manager watches; blank for all.
	Namespace string
}

// Applier keeps the ExtensionConfig. The manager runs it on its leader.
type Applier struct{ options Options }

// New returns an Applier.
func New(o Options) *Applier { return &Applier{options: o} }

// Start keeps the ExtensionConfig until ctx ends.
func (a *Applier) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("extension").WithValues("ExtensionConfig", Name)
	for {
		delay := checkInterval
		if err := a.Apply(ctx); err != nil {
			log.Error(err, "Keeping the ExtensionConfig")
			delay = retryInterval
		} else if !a.options.Enabled {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.options.Clock.After(delay):
		}
	}
}

// Apply creates, updates or removes the ExtensionConfig once.
func (a *Applier) Apply(ctx context.Context) error {
	is := &runtimev1.ExtensionConfig{}
	err := a.options.Reader.Get(ctx, client.ObjectKey{Name: Name}, is)
	switch {
	case meta.IsNoMatchError(err) && !a.options.Enabled:
		return nil // Cluster API is not installed
	case apierrors.IsNotFound(err) && !a.options.Enabled:
		return nil
	case apierrors.IsNotFound(err):
		is = &runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{Name: Name}}
		a.set(is)
		if err := a.options.Client.Create(ctx, is); err != nil {
			return fmt.Errorf("creating ExtensionConfig %s; is Cluster API's feature gate RuntimeSDK on?: %w", Name, err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("getting ExtensionConfig %s: %w", Name, err)
	case is.Labels[clusterv1.ProviderNameLabel] != provider:
		if !a.options.Enabled {
			return nil
		}
		return fmt.Errorf("there is an ExtensionConfig %s without the label %s=%s: it is not this provider's", Name, clusterv1.ProviderNameLabel, provider)
	case !a.options.Enabled:
		if err := a.options.Client.Delete(ctx, is, client.Preconditions{UID: &is.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing ExtensionConfig %s: %w", Name, err)
		}
		return nil
	}
	before := is.DeepCopy()
	if a.set(is); equality.Semantic.DeepEqual(before, is) {
		return nil
	}
	if err := a.options.Client.Patch(ctx, is, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("updating ExtensionConfig %s: %w", Name, err)
	}
	return nil
}

// set sets what this provider decides. The CA of the Service's certificate is Cluster API's to
// copy from the Secret.
func (a *Applier) set(e *runtimev1.ExtensionConfig) {
	o := a.options
	if e.Labels == nil {
		e.Labels = map[string]string{}
	}
	e.Labels[clusterv1.ProviderNameLabel] = provider
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{infrav1.InPlaceLabel: "true"}}
	if o.Namespace != "" {
		selector.MatchLabels["kubernetes.io/metadata.name"] = o.Namespace
	}
	e.Spec.NamespaceSelector = selector
	if o.URL != "" {
		delete(e.Annotations, runtimev1.InjectCAFromSecretAnnotation)
		e.Spec.ClientConfig = runtimev1.ClientConfig{URL: o.URL, CABundle: o.CABundle}
		return
	}
	if e.Annotations == nil {
		e.Annotations = map[string]string{}
	}
	e.Annotations[runtimev1.InjectCAFromSecretAnnotation] = o.Secret.String()
	e.Spec.ClientConfig.URL = ""
	e.Spec.ClientConfig.Service = runtimev1.ServiceReference{Namespace: o.Service.Namespace, Name: o.Service.Name, Port: new(int32(443))}
}
