//go:build e2e

package capi

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/test/e2e"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

var _ = Describe("Cluster API's spec", Label("capi"), func() {
	ctx := context.Background()

	Context("QuickStart", Label("capi-quick-start"), func() {
		e2e.QuickStartSpec(ctx, func() e2e.QuickStartSpecInput {
			return e2e.QuickStartSpecInput{
				E2EConfig: shared.config, ClusterctlConfigPath: shared.hosts.ClusterctlConfig(), BootstrapClusterProxy: shared.proxy,
				ArtifactFolder: shared.artifacts, PostNamespaceCreated: giveHosts,
			}
		})
	})

	Context("QuickStart of a ClusterClass", Label("capi-quick-start"), func() {
		e2e.QuickStartSpec(ctx, func() e2e.QuickStartSpecInput {
			return e2e.QuickStartSpecInput{
				E2EConfig: shared.config, ClusterctlConfigPath: shared.hosts.ClusterctlConfig(), BootstrapClusterProxy: shared.proxy,
				ArtifactFolder: shared.artifacts, PostNamespaceCreated: giveHosts, Flavor: new("topology"),
			}
		})
	})

	Context("MachineDeploymentScale", Label("capi-scale"), func() {
		e2e.MachineDeploymentScaleSpec(ctx, func() e2e.MachineDeploymentScaleSpecInput {
			return e2e.MachineDeploymentScaleSpecInput{
				E2EConfig: shared.config, ClusterctlConfigPath: shared.hosts.ClusterctlConfig(), BootstrapClusterProxy: shared.proxy,
				ArtifactFolder: shared.artifacts, PostNamespaceCreated: giveHosts,
			}
		})
	})

	Context("KCPAndMachineDeploymentRollout", Label("capi-rollout"), func() {
		e2e.KCPAndMachineDeploymentRolloutSpec(ctx, func() e2e.KCPAndMachineDeploymentRolloutSpecInput {
			return e2e.KCPAndMachineDeploymentRolloutSpecInput{
				E2EConfig: shared.config, ClusterctlConfigPath: shared.hosts.ClusterctlConfig(), BootstrapClusterProxy: shared.proxy,
				ArtifactFolder: shared.artifacts, PostNamespaceCreated: giveHosts, Flavor: "kcp-md-taints",
			}
		})
	})

	Context("MachineDeploymentRemediation", Label("capi-remediation"), func() {
		e2e.MachineDeploymentRemediationSpec(ctx, func() e2e.MachineDeploymentRemediationSpecInput {
			return e2e.MachineDeploymentRemediationSpecInput{
				E2EConfig: shared.config, ClusterctlConfigPath: shared.hosts.ClusterctlConfig(), BootstrapClusterProxy: shared.proxy,
				ArtifactFolder: shared.artifacts, PostNamespaceCreated: giveHosts,
			}
		})
	})

	Context("KCPRemediation", Label("capi-remediation"), func() {
		e2e.KCPRemediationSpec(ctx, func() e2e.KCPRemediationSpecInput {
			return e2e.KCPRemediationSpecInput{
				E2EConfig: shared.config, ClusterctlConfigPath: shared.hosts.ClusterctlConfig(), BootstrapClusterProxy: shared.proxy,
				ArtifactFolder: shared.artifacts, PostNamespaceCreated: giveHosts,
			}
		})
	})

	Context("NodeDrainTimeout", Label("capi-drain"), func() {
		e2e.NodeDrainTimeoutSpec(ctx, func() e2e.NodeDrainTimeoutSpecInput {
			return e2e.NodeDrainTimeoutSpecInput{
				E2EConfig: shared.config, ClusterctlConfigPath: shared.hosts.ClusterctlConfig(), BootstrapClusterProxy: shared.proxy,
				ArtifactFolder: shared.artifacts, PostNamespaceCreated: giveHosts, Flavor: new("topology-vip"),
			}
		})
	})

	Context("ClusterClassChanges", Label("capi-class"), func() {
		e2e.ClusterClassChangesSpec(ctx, func() e2e.ClusterClassChangesSpecInput {
			return e2e.ClusterClassChangesSpecInput{
				E2EConfig: shared.config, ClusterctlConfigPath: shared.hosts.ClusterctlConfig(), BootstrapClusterProxy: shared.proxy,
				ArtifactFolder: shared.artifacts, PostNamespaceCreated: giveHosts, Flavor: "topology",
				ModifyControlPlaneFields:                                   map[string]any{"spec.kubeadmConfigSpec.verbosity": int64(4)},
				ModifyMachineDeploymentBootstrapConfigTemplateFields:       map[string]any{"spec.template.spec.verbosity": int64(4)},
				ModifyMachineDeploymentInfrastructureMachineTemplateFields: map[string]any{"spec.template.spec.ignoreFindings": []any{"Swap", "Clock"}},
			}
		})
	})

	Context("ClusterClassRollout", Label("capi-rollout-class"), func() {
		e2e.ClusterClassRolloutSpec(ctx, func() e2e.ClusterClassRolloutSpecInput {
			return e2e.ClusterClassRolloutSpecInput{
				E2EConfig: shared.config, ClusterctlConfigPath: shared.hosts.ClusterctlConfig(), BootstrapClusterProxy: shared.proxy,
				ArtifactFolder: shared.artifacts, PostNamespaceCreated: giveHosts, Flavor: "topology-taints",
				FilterMetadataBeforeValidation: func(object client.Object) clusterv1.ObjectMeta {
					// It is on the Machines of control planes.
					annotations := object.GetAnnotations()
					delete(annotations, infrav1.EndpointHookAnnotation)
					return clusterv1.ObjectMeta{Labels: object.GetLabels(), Annotations: annotations}
				},
			}
		})
	})
})
