"""FastMCP's example mount_example.py: a server made of two others.

$ trio-mcp list examples/ports/fastmcp_mount_example.py
"""

import json

from trio_mcp import Server

weather = Server("Weather App")
news = Server("News App")
server = Server("Main App")

# FastMCP joins the namespace to names with one underscore, and puts it into URIs. `mount(weather, prefix="weather")`
# would join it with two, and leave URIs alone. To keep what clients know, the names are written out here. The
# resources are JSON that FastMCP calls plain text; a `dict` would be `application/json`.


@weather.tool
def weather_get_weather_forecast(location: str) -> str:
    """Get the weather forecast for a location."""
    return f"Sunny skies for {location} today!"


@weather.resource("weather://weather/forecast", mime_type="text/plain")
async def weather_data() -> str:
    """Return current weather data."""
    return json.dumps({"temperature": 72, "conditions": "sunny", "humidity": 45, "wind_speed": 5})


@news.tool
def news_get_news_headlines() -> list[str]:
    """Get the latest news headlines."""
    return [
        "Tech company launches new product",
        "Local team wins championship",
        "Scientists make breakthrough discovery",
    ]


@news.resource("news://news/headlines", mime_type="text/plain")
async def news_data() -> str:
    """Return latest news data."""
    return json.dumps(
        {
            "top_story": "Breaking news: Important event happened",
            "categories": ["politics", "sports", "technology"],
            "sources": ["AP", "Reuters", "Local Sources"],
        }
    )


@server.tool
def check_app_status() -> dict[str, str]:
    """Check the status of the main application."""
    return {"status": "running", "version": "1.0.0", "uptime": "3h 24m"}


server.mount(weather)
server.mount(news)


if __name__ == "__main__":
    server.run()
