package webhook

import (
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// Options are what the webhooks need.
type Options struct {
	// Selectors compiles expressions; nil compiles each time anew.
	Selectors *selector.Compiler
	// Surges may refuse machines; nil refuses none.
	Surges Surges
	// Deletions may refuse the deletion of Machines of Cluster API; nil refuses none.
	Deletions Deletions
	// Recorder records Events on Machines whose deletion was refused.
	Recorder events.EventRecorder
	// Requests records who decides on hosts.
	Requests RequestLog
	// Reviews finds out what users may do.
	Reviews Reviewer
}

// Setup serves all webhooks on the manager's webhook server.
func Setup(mgr ctrl.Manager, o Options) error {
	// controller-runtime's own logger adds the user name as it is, of any length.
	logger := mgr.GetLogger().WithName("admission")
	quiet := func(logr.Logger, *admission.Request) logr.Logger { return logger }
	err := ctrl.NewWebhookManagedBy(mgr, &infrav1.ElementalMachine{}).
		WithValidator(machineValidator{reviews: o.Reviews, selectors: o.Selectors, surges: o.Surges}).
		Complete()
	if err != nil {
		return fmt.Errorf("setting up the webhook of ElementalMachine: %w", err)
	}
	err = ctrl.NewWebhookManagedBy(mgr, &infrav1.ElementalMachineTemplate{}).
		WithValidator(machineTemplateValidator{reviews: o.Reviews, selectors: o.Selectors}).
		Complete()
	if err != nil {
		return fmt.Errorf("setting up the webhook of ElementalMachineTemplate: %w", err)
	}
	err = ctrl.NewWebhookManagedBy(mgr, &infrav1.ElementalCluster{}).
		WithValidator(clusterValidator{}).
		Complete()
	if err != nil {
		return fmt.Errorf("setting up the webhook of ElementalCluster: %w", err)
	}
	err = ctrl.NewWebhookManagedBy(mgr, &infrav1.ElementalClusterTemplate{}).
		WithValidator(clusterTemplateValidator{}).
		Complete()
	if err != nil {
		return fmt.Errorf("setting up the webhook of ElementalClusterTemplate: %w", err)
	}
	err = ctrl.NewWebhookManagedBy(mgr, &infrav1.ElementalRemediationTemplate{}).
		WithValidator(remediationTemplateValidator{}).
		Complete()
	if err != nil {
		return fmt.Errorf("setting up the webhook of ElementalRemediationTemplate: %w", err)
	}
	err = ctrl.NewWebhookManagedBy(mgr, &infrav1.ElementalRegistration{}).
		WithValidator(registrationValidator{requests: o.Requests}).
		WithContextFunc(withSource).
		WithLogConstructor(quiet).
		Complete()
	if err != nil {
		return fmt.Errorf("setting up the webhook of ElementalRegistration: %w", err)
	}
	err = ctrl.NewWebhookManagedBy(mgr, &clusterv1.Machine{}).
		WithValidator(deletionValidator{deletions: o.Deletions, recorder: o.Recorder}).
		Complete()
	if err != nil {
		return fmt.Errorf("setting up the webhook of Machine: %w", err)
	}
	err = ctrl.NewWebhookManagedBy(mgr, &infrav1.ElementalHostGrant{}).
		WithValidator(grantValidator{reviews: o.Reviews, requests: o.Requests}).
		WithContextFunc(withSource).
		WithLogConstructor(quiet).
		Complete()
	if err != nil {
		return fmt.Errorf("setting up the webhook of ElementalHostGrant: %w", err)
	}
	err = ctrl.NewWebhookManagedBy(mgr, &infrav1.ElementalHost{}).
		WithValidator(hostValidator{reviews: o.Reviews, requests: o.Requests}).
		WithContextFunc(withSource).
		WithLogConstructor(quiet).
		Complete()
	if err != nil {
		return fmt.Errorf("setting up the webhook of ElementalHost: %w", err)
	}
	err = ctrl.NewWebhookManagedBy(mgr, &infrav1.ElementalEtcdRestore{}).
		WithValidator(restoreValidator{reviews: o.Reviews, requests: o.Requests}).
		WithContextFunc(withSource).
		WithLogConstructor(quiet).
		Complete()
	if err != nil {
		return fmt.Errorf("setting up the webhook of ElementalEtcdRestore: %w", err)
	}
	return nil
}
