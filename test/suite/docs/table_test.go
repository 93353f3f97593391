package docs_test

// entries returns the table of all blocks of shell, by page. The files of it are in the order of the pages.
func entries() map[string][]entry {
	all := map[string][]entry{}
	for _, part := range []map[string][]entry{
		entriesOfHosts(), entriesOfInstallation(), entriesOfClusters(), entriesElsewhere(), entriesUnrun(),
	} {
		for page, list := range part {
			all[page] = append(all[page], list...)
		}
	}
	return all
}

// Tests of this folder that run blocks.
const (
	commands     = ran("TestCommands")
	installation = ran("TestCommandsOfInstallation")
)

func entriesOfHosts() map[string][]entry {
	enrolled := like{"docs/guide.md", "Enrol each host", "kubectl elemental enrol"}
	return map[string][]entry{
		"docs/kubectl.md": {
			{"Install", "make build", commands},
			{"Install", "sudo ln -s", commands},
			{"See the fleet", "kubectl elemental hosts", commands},
			{"Enrol machines", "kubectl elemental enrol", enrolled},
			{"Explain a host", "kubectl elemental explain host", commands},
			{"Act", "kubectl elemental fence", commands},
			{"Tokens", "kubectl elemental token", commands},
		},
		"docs/install.md": {
			{"Enrol hosts", "kubectl apply", commands},
			{"Enrol hosts", "kubectl elemental enrol", enrolled},
			{"Enrol hosts", "kubectl get secret berlin-token", commands},
			{"Enrol hosts", "kubectl get elementalhosts -o wide", commands},
			{"Enrol hosts", "kubectl get elementalhosts -o custom-columns", commands},
		},
		"docs/agent.md": {
			{"Programs of Kubernetes", "kubectl get elementalhosts", commands},
			{"Preflight", "kubectl get elementalhost", commands},
		},
		"docs/agent-api.md": {
			{"How hosts reach the agent API", "curl", commands},
		},
		"docs/operating.md": {
			{"Pause", "kubectl annotate elementalhost NAME", commands},
			{"Remediation", "export CLUSTER_NAME", commands},
			{"Cordon", "kubectl elemental cordon", commands},
			{"Maintenance", "kubectl elemental maintenance", commands},
			{"Reboot", "kubectl patch elementalhost NAME", commands},
			{"Certificate renewal", "kubectl patch elementalhost NAME", commands},
			{"OS upgrade", "kubectl patch elementalhost NAME", commands},
			{"Hold, and prevent-reset", "kubectl annotate elementalhost NAME", commands},
			{"Logs of a host", "kubectl patch elementalhost h1", commands},
			{"Rotate the agent API's CA", "step() {", commands},
			{"Rotate the agent API's CA", "step Prepare", commands},
			{"Rotate the agent API's CA", "step Switch", commands},
			{"Rotate the agent API's CA", "step Finish", commands},
			{"Rotate the agent API's CA", "kubectl -n elemental-system events", commands},
		},
		"docs/sharing.md": {
			{"Roles", "kubectl create namespace berlin", commands},
			{"Roles", "kubectl create clusterrolebinding host-operators", commands},
			{"Roles", "kubectl auth can-i approve", commands},
			{"Roles", "kubectl -n berlin create role approver", commands},
			{"Roles", "kubectl -n berlin create role log-of-berlin-7", commands},
			{"Templates, images and ClusterClasses", "kubectl create clusterrolebinding elemental-machines", commands},
		},
	}
}

func entriesOfInstallation() map[string][]entry {
	return map[string][]entry{
		"docs/install.md": {
			{"By clusterctl", "repository=", installation},
			{"By clusterctl", "export ELEMENTAL_AGENT_API_URL", installation},
			{"By the Cluster API Operator", "cd $repository", installation},
			{"One namespace only", "export ELEMENTAL_WATCH_NAMESPACE", installation},
			{"Network policy", "kubectl get endpointslices", installation},
		},
		"docs/agent-api.md": {
			{"A load balancer", "export", installation},
			{"A node port", "export", installation},
			{"A Gateway", "export", installation},
			{"HAProxy", "export", installation},
		},
		"docs/backups.md":    {{"Through the manager", "export", installation}},
		"docs/bundles.md":    {{"Serve bundles", "kubectl -n elemental-system patch deployment", installation}},
		"docs/monitoring.md": {{"Set it up", "clusterctl generate yaml", installation}, {"Set it up", "kubectl apply -n monitoring", installation}},
		"docs/upgrading.md":  {{"Switch it on", "export EXP_RUNTIME_SDK", installation}, {"Switch it on", "kubectl label namespace", installation}},
	}
}

func entriesOfClusters() map[string][]entry {
	return map[string][]entry{
		"docs/install.md": {
			{"Make a cluster", "clusterctl generate cluster", commands},
			{"Make a cluster", "clusterctl get kubeconfig", like{"docs/guide.md", "Get the kubeconfig", "clusterctl get kubeconfig"}},
			{"A network plugin for all clusters", "export NETWORK_PLUGIN", commands},
		},
		"docs/clusterclass.md": {{"Make a cluster", "export CONTROL_PLANE_HOST_LABELS", commands}},
		"docs/kubectl.md": {
			{"Explain a Machine", "kubectl elemental explain machine", commands},
			{"Explain a Cluster", "kubectl elemental explain cluster", commands},
			{"The endpoint", "kubectl elemental endpoint", commands},
			{"Logs of hosts", "kubectl elemental logs", commands},
			{"Support bundles", "kubectl elemental support-bundle", commands},
		},
		"docs/endpoint.md": {{"Move it yourself", "kubectl annotate elementalcluster", commands}},
		"docs/vip.md":      {{"Addresses from an IP pool", "kubectl patch ipaddressclaim", commands}},
		"docs/upgrading.md": {
			{"Upgrade", "kubectl patch kubeadmcontrolplane", commands},
			{"What is refused", "kubectl get events", commands},
			{"Hold a cluster back", "kubectl label cluster", commands},
			{"Operating system", "kubectl patch kubeadmcontrolplane", commands},
			{"By hand", "kubectl annotate kubeadmcontrolplane", commands},
			{"Retry", "kubectl annotate elementalmachine", commands},
			{"End an upgrade", "kubectl annotate machine", commands},
		},
		"docs/backups.md": {
			{"Off the hosts", "age-keygen", commands},
			{"Off the hosts", "kubectl create secret generic backups", commands},
			{"Watch", "kubectl get elementalcluster NAME", commands},
			{"Copy one by hand", "ssh root@HOST", commands},
			{"Restore", "kubectl -n sites get elementaletcdrestore", commands},
			{"Restore from S3", "kubectl -n sites create secret", commands},
			{"Restore from S3", "kubectl -n sites delete secret", commands},
		},
	}
}
