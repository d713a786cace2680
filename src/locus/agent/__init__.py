"""Agents: a model in a loop with tools. Every step is saved."""

from locus.agent.agent import Agent
from locus.agent.config import AgentConfig
from locus.agent.factories import create_agent, create_deep_agent
from locus.agent.middleware import HumanInTheLoop, Middleware, Summarization, SummarizationMiddleware
from locus.agent.results import AgentMetrics, AgentResult

__all__ = [
    "Agent",
    "AgentConfig",
    "AgentMetrics",
    "AgentResult",
    "HumanInTheLoop",
    "Middleware",
    "Summarization",
    "SummarizationMiddleware",
    "create_agent",
    "create_deep_agent",
]
