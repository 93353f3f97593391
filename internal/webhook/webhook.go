package webhook

import (
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// Setup serves all webhooks on the manager's webhook server. Expressions are
// compiled by selectors; nil compiles each time anew.
func Setup(mgr ctrl.Manager, selectors *selector.Compiler) error {
	err := ctrl.NewWebhookManagedBy(mgr, &infrav1.ElementalMachine{}).
		WithValidator(machineValidator{selectors: selectors}).
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
	return nil
}
