"""Games that a reset of the console always starts in the same state, whatever was before it.

Only in the game's own mode and difficulty, and only with these versions of ale-py. ``python
tools/settled_resets.py`` writes the list, and says how it finds out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_GAMES = {
    "0.12.1": """
        adventure air_raid alien asterix asteroids atlantis atlantis2 bank_heist basic_math battle_zone blackjack
        bowling breakout carnival casino centipede crazy_climber darkchambers defender donkey_kong double_dunk
        earthworld enduro et flag_capture frogger galaxian gopher gravitar human_cannonball jamesbond journey_escape
        kangaroo keystone_kapers king_kong klax laser_gates lost_luggage mario_bros montezuma_revenge mr_do ms_pacman
        name_this_game othello pacman phoenix pitfall pong riverraid road_runner robotank skiing space_invaders
        star_gunner superman turmoil tutankham up_n_down video_checkers video_chess video_pinball wizard_of_wor
        word_zapper zaxxon
    """,
}
SETTLED: Mapping[str, frozenset[str]] = {version: frozenset(games.split()) for version, games in _GAMES.items()}
