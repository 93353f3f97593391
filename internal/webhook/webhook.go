package webhook

import (
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Setup serves all webhooks on the manager's webhook server.
func Setup(mgr ctrl.Manager) error {
	err := ctrl.NewWebhookManagedBy(mgr, &infrav1.ElementalMachineTemplate{}).
		WithValidator(machineTemplateValidator{}).
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
