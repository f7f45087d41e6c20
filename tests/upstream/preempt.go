package main

import (
	"sort"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

// How often two candidates are compared: upstream chooses one of equals by the order of a map, which is random, but
// begins with one of two in seven cases of eight.
const choices = 400

// A nominated is the waiting pods that have a node set aside, by that node.
type nominated map[string][]fwk.PodInfo

func (n nominated) add(pod *v1.Pod) error {
	node := pod.Status.NominatedNodeName
	if node == "" {
		return nil
	}
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return err
	}
	n[node] = append(n[node], info)
	return nil
}

func (n nominated) NominatedPodsForNode(node string) []fwk.PodInfo { return n[node] }

func (n nominated) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}

func (n nominated) DeleteNominatedPodIfExists(*v1.Pod) {}

func (n nominated) UpdateNominatedPod(klog.Logger, *v1.Pod, fwk.PodInfo) {}

// A candidate is what would have to go from a node, most important first.
type candidate struct {
	Victims    []string `json:"victims"`
	Violations int64    `json:"violations"`
}

// A preempting is what preemption could do for a pod that no node takes.
type preempting struct {
	Eligible bool   `json:"eligible"`
	Why      string `json:"why"`
	// Nodes that were rejected for something that other pods may have to do with.
	MightHelp  []string             `json:"might_help"`
	Candidates map[string]candidate `json:"candidates"`
	// The best candidates: upstream takes one of them.
	Best []string `json:"best"`
}

// preempt follows the evaluator's Preempt up to the choice of a node, with every node a candidate: upstream looks
// at a tenth of the nodes and at least at 100.
func (c *cluster) preempt(pod *v1.Pod, seen filtered) (*preempting, error) {
	found := &preempting{MightHelp: []string{}, Candidates: map[string]candidate{}, Best: []string{}}
	args := &config.DefaultPreemptionArgs{MinCandidateNodesPercentage: 100, MinCandidateNodesAbsolute: 1}
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	plugin, err := defaultpreemption.New(c.ctx, args, c.framework, features)
	if err != nil {
		return nil, err
	}
	found.Eligible, found.Why = plugin.PodEligibleToPreemptOthers(c.ctx, pod, seen.statuses.Get(pod.Status.NominatedNodeName))
	nodes, err := seen.statuses.NodesForStatusCode(c.snapshot.NodeInfos(), fwk.Unschedulable)
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		found.MightHelp = append(found.MightHelp, node.Node().Name)
	}
	sort.Strings(found.MightHelp)
	if !found.Eligible || len(nodes) == 0 {
		return found, nil
	}
	budgets, err := plugin.Evaluator.PdbLister.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	candidates, _, err := plugin.Evaluator.DryRunPreemption(c.ctx, seen.state, pod, nodes, budgets, 0, int32(len(nodes)))
	if err != nil {
		return nil, err
	}
	for _, each := range candidates {
		victims := candidate{Violations: each.Victims().NumPDBViolations}
		for _, victim := range each.Victims().Pods {
			victims.Victims = append(victims.Victims, victim.Namespace+"/"+victim.Name)
		}
		found.Candidates[each.Name()] = victims
	}
	found.Best = c.best(plugin, candidates)
	return found, nil
}

func (c *cluster) best(plugin *defaultpreemption.DefaultPreemption, candidates []preemption.Candidate) []string {
	names := []string{}
	chosen := plugin.Evaluator.SelectCandidate(c.ctx, candidates)
	if chosen == nil {
		return names
	}
	for _, each := range candidates {
		is := each.Name() == chosen.Name()
		for i := 0; i < choices && !is; i++ {
			is = plugin.Evaluator.SelectCandidate(c.ctx, []preemption.Candidate{chosen, each}).Name() == each.Name()
		}
		if is {
			names = append(names, each.Name())
		}
	}
	sort.Strings(names)
	return names
}
