package webhook

import (
	"fmt"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// Setup serves all webhooks on the manager's webhook server. Expressions are
// compiled by selectors; nil compiles each time anew. surges may refuse machines; nil refuses
// none. Changes of hosts are recorded in requests.
func Setup(mgr ctrl.Manager, selectors *selector.Compiler, surges Surges, requests RequestLog) error {
	err := ctrl.NewWebhookManagedBy(mgr, &infrav1.ElementalMachine{}).
		WithValidator(machineValidator{selectors: selectors, surges: surges}).
		Complete()
	if err != nil {
		return fmt.Errorf("setting up the webhook of ElementalMachine: %w", err)
	}
	err = ctrl.NewWebhookManagedBy(mgr, &infrav1.ElementalMachineTemplate{}).
		WithValidator(machineTemplateValidator{selectors: selectors}).
		Complete()
	if err != nil {
		return fmt.Errorf("setting up the webhook of ElementalMachineTemplate: %w", err)
	}
	err = ctrl.NewWebhookManagedBy(mgr, &infrav1.ElementalRemediationTemplate{}).
		WithValidator(remediationTemplateValidator{}).
		Complete()
	if err != nil {
		return fmt.Errorf("setting up the webhook of ElementalRemediationTemplate: %w", err)
	}
	err = ctrl.NewWebhookManagedBy(mgr, &infrav1.ElementalRegistration{}).
		WithValidator(registrationValidator{}).
		Complete()
	if err != nil {
		return fmt.Errorf("setting up the webhook of ElementalRegistration: %w", err)
	}
	// controller-runtime's own logger adds the user name as it is, of any length.
	logger := mgr.GetLogger().WithName("admission")
	err = ctrl.NewWebhookManagedBy(mgr, &infrav1.ElementalHost{}).
		WithValidator(hostRecorder{requests: requests}).
		WithContextFunc(withSource).
		WithLogConstructor(func(logr.Logger, *admission.Request) logr.Logger { return logger }).
		Complete()
	if err != nil {
		return fmt.Errorf("setting up the webhook of ElementalHost: %w", err)
	}
	return nil
}
