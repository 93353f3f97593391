// Package template reconciles ElementalMachineTemplates. Its status shows the capacity of
// a machine made from the template, which the cluster autoscaler needs to scale from
// zero, and the number of hosts that match.
//
// Hosts change all the time, and each update evaluates all of them. A template is updated
// at once after a change, but at most every ten seconds, and less often if there are more
// than a hundred templates.
package template
